/* Slurm's own PMI-2 client library against the server of the launch agents. */
#include <slurm/pmi2.h>
#include <stdio.h>
#include <string.h>

#define CHECK(call) do { int rc = (call); if (rc != PMI2_SUCCESS) { fprintf(stderr, "%s: %d\n", #call, rc); return 1; } } while (0)

int main(void)
{
    int spawned, size, rank, appnum, length, found;
    char job[256], key[64], value[PMI2_MAX_VALLEN], wanted[64];

    CHECK(PMI2_Init(&spawned, &size, &rank, &appnum));
    CHECK(PMI2_Job_GetId(job, sizeof job));
    CHECK(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found));
    if (!found || strncmp(value, "(vector,", 8) != 0)
        return 2;
    snprintf(key, sizeof key, "card-%d", rank);
    snprintf(value, sizeof value, "rank %d; of %d", rank, size);
    CHECK(PMI2_KVS_Put(key, value));
    CHECK(PMI2_KVS_Fence());
    for (int other = 0; other < size; other++) {
        snprintf(key, sizeof key, "card-%d", other);
        snprintf(wanted, sizeof wanted, "rank %d; of %d", other, size);
        CHECK(PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length));
        if (strcmp(value, wanted) != 0)
            return 3;
    }
    CHECK(PMI2_Info_GetNodeAttr("nothing", value, sizeof value, &found, 0));
    if (found)
        return 4;
    CHECK(PMI2_Finalize());
    printf("rank %d of %d\n", rank, size);
    return 0;
}
