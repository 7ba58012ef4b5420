/* mv2_trigger HOST: what the program of this name in MVAPICH2 publishes, by the same calls. */
#include "libftb.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    FTB_client_t client;
    FTB_client_handle_t handle;
    FTB_event_info_t event = { "FTB_MIGRATE_TRIGGER", "info" };
    FTB_event_properties_t with;
    FTB_event_handle_t published;

    if (argc != 2)
        return 2;
    memset(&client, 0, sizeof client);
    strcpy(client.event_space, "FTB.MPI.MIG_TRIGGER");
    strcpy(client.client_name, "MV2_MIGRATE");
    strcpy(client.client_jobid, "16");
    strcpy(client.client_subscription_style, "FTB_SUBSCRIPTION_BOTH");
    client.client_polling_queue_len = 10;
    /* The original does not clear the payload: behind the NUL is what the stack had. */
    memset(&with, 'x', sizeof with);
    with.event_type = 1;
    snprintf(with.event_payload, sizeof with.event_payload, "%s", argv[1]);
    if (FTB_Connect(&client, &handle) != FTB_SUCCESS ||
        FTB_Declare_publishable_events(handle, NULL, &event, 1) != FTB_SUCCESS ||
        FTB_Publish(handle, "FTB_MIGRATE_TRIGGER", &with, &published) != FTB_SUCCESS)
        return 1;
    return FTB_Disconnect(handle) != FTB_SUCCESS;
}
