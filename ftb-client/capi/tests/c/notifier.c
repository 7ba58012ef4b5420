/* How an MPI library tells of its troubles: written for CIFTS FTB, not changed since. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <libftb.h>

static FTB_client_handle_t ftb_handle;

static FTB_event_info_t mpi_events[] = {
    {"FTB_MPI_PROCS_DEAD", "error"},
    {"FTB_MPI_PROCS_UNREACHABLE", "error"},
    {"MPI_ABORT", "fatal"},
};

static int ftb_init(int rank)
{
    FTB_client_t ftb_cinfo;                       /* client_schema_ver stays unset */
    strncpy(ftb_cinfo.event_space, "ftb.mpi.mvapich2", sizeof(ftb_cinfo.event_space));
    strncpy(ftb_cinfo.client_name, "mvapich2 2.3.7", sizeof(ftb_cinfo.client_name));
    snprintf(ftb_cinfo.client_jobid, sizeof(ftb_cinfo.client_jobid), "%d", 4711);
    strncpy(ftb_cinfo.client_subscription_style, "FTB_SUBSCRIPTION_NONE",
            sizeof(ftb_cinfo.client_subscription_style));
    if (FTB_Connect(&ftb_cinfo, &ftb_handle) != FTB_SUCCESS) {
        fprintf(stderr, "rank %d: no FTB\n", rank);
        return -1;
    }
    if (FTB_Declare_publishable_events(ftb_handle, 0, mpi_events,
                                       sizeof(mpi_events) / sizeof(mpi_events[0])) != FTB_SUCCESS)
        return -1;
    return 0;
}

static void ftb_publish(const char *event_name, const char *text)
{
    FTB_event_properties_t event_prop;
    FTB_event_handle_t event_handle;

    event_prop.event_type = 1;
    memset(event_prop.event_payload, 0, sizeof(event_prop.event_payload));
    snprintf(event_prop.event_payload, sizeof(event_prop.event_payload), "%s", text);
    if (FTB_Publish(ftb_handle, event_name, &event_prop, &event_handle) != FTB_SUCCESS)
        fprintf(stderr, "cannot publish %s\n", event_name);
}

int main(void)
{
    if (ftb_init(0) != 0)
        return 1;
    ftb_publish("FTB_MPI_PROCS_DEAD", "rank 3 on node07");
    ftb_publish("FTB_MPI_PROCS_UNREACHABLE", "rank 4");
    ftb_publish("MPI_ABORT", "MPI_Abort(MPI_COMM_WORLD, 1)");
    abort(); /* as MPI_Abort does: without FTB_Disconnect */
}
