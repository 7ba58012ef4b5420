/* Rank 0 sends more than can wait at rank 1, which receives nothing until the file GATE is there:
 * it waits in FMI_Send. If rank 1 dies there, FMI_Send fails. Handles no signal.
 *
 * fmi_flood GATE: GATE.reached is there when rank 0 begins. Ends with `result RANK FAILURES`, of
 * FMI_Send before a recovery. */
#include <fmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGES = 64, BYTES = 1 << 20 };

static char message[BYTES];

int main(int argc, char **argv)
{
    int rank, step = 0, failures = 0;
    char name[4096];
    void *ckpts[] = {&step};
    size_t sizes[] = {sizeof step};

    if (argc < 2 || FMI_Init(&argc, &argv) || FMI_Comm_rank(FMI_COMM_WORLD, &rank))
        return 2;
    while (FMI_Loop(ckpts, sizes, 1) >= 0 && step < 1) {
        if (rank == 0) {
            snprintf(name, sizeof name, "%s.reached", argv[1]);
            FILE *file = fopen(name, "w");
            if (!file || fclose(file))
                FMI_Abort(FMI_COMM_WORLD, 3);
        }
        if (rank == 1)
            while (access(argv[1], F_OK))
                usleep(1000);
        int code = FMI_SUCCESS;
        for (int at = 0; at < MESSAGES && code == FMI_SUCCESS; at++) {
            memset(message, at, sizeof message);
            if (rank == 0)
                code = FMI_Send(message, BYTES, FMI_BYTE, 1, 0, FMI_COMM_WORLD);
            else
                code = FMI_Recv(message, BYTES, FMI_BYTE, 0, 0, FMI_COMM_WORLD, FMI_STATUS_IGNORE);
            if (code == FMI_SUCCESS && message[BYTES - 1] != (char)at)
                FMI_Abort(FMI_COMM_WORLD, 5);
        }
        if (code != FMI_SUCCESS && code != FMI_ERR_RECOVERY) {
            fprintf(stderr, "%d: %s\n", code, ftb_job_error());
            FMI_Abort(FMI_COMM_WORLD, 6);
        }
        failures += code == FMI_ERR_RECOVERY;
        step++;
    }
    printf("result %d %d\n", rank, failures);
    fflush(stdout);
    return FMI_Finalize();
}
