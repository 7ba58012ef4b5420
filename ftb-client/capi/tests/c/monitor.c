/* How a monitoring program looks at a cluster: polls, and says what it sees. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <libftb.h>

int main(int argc, char *argv[])
{
    FTB_client_t cinfo;
    FTB_client_handle_t handle;
    FTB_subscribe_handle_t shandle;
    FTB_receive_event_t caught;
    int ret, wanted = argc > 1 ? atoi(argv[1]) : 1;

    memset(&cinfo, 0, sizeof(cinfo));
    strcpy(cinfo.event_space, "FTB.FTB_EXAMPLES.MONITOR");
    strcpy(cinfo.client_schema_ver, "0.5");
    strcpy(cinfo.client_name, "");
    strcpy(cinfo.client_jobid, "");
    strcpy(cinfo.client_subscription_style, "FTB_SUBSCRIPTION_POLLING");

    ret = FTB_Connect(&cinfo, &handle);
    if (ret != FTB_SUCCESS) {
        printf("FTB_Connect is not successful ret=%d\n", ret);
        exit(-1);
    }
    ret = FTB_Subscribe(&shandle, handle, argc > 2 ? argv[2] : "", NULL, NULL);
    if (ret != FTB_SUCCESS) {
        printf("FTB_Subscribe failed ret=%d!\n", ret);
        exit(-1);
    }
    printf("watching\n");
    fflush(stdout);
    while (wanted > 0) {
        ret = FTB_Poll_event(shandle, &caught);
        if (ret == FTB_GOT_NO_EVENT) {
            usleep(1000);
            continue;
        }
        if (ret != FTB_SUCCESS) {
            printf("FTB_Poll_event failed ret=%d\n", ret);
            exit(-1);
        }
        printf("%s: %s %s from '%s', job '%s', on %s: %.368s\n", caught.event_space, caught.severity,
               caught.event_name, caught.client_name, caught.client_jobid,
               caught.incoming_src.hostname, caught.event_payload);
        fflush(stdout);
        wanted--;
    }
    FTB_Disconnect(handle);
    return 0;
}
