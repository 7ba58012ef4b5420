/* Publishes one event and leaves with exit(), without having disconnected.
 * argv: event space, event name, severity, payload. */
#include "check.h"

int main(int argc, char **argv)
{
    MUST(argc == 5);
    FTB_client_handle_t handle = connected(argv[1], "publisher", "FTB_SUBSCRIPTION_NONE");
    FTB_event_info_t event;
    FTB_event_handle_t published;
    memset(&event, 0, sizeof(event));
    strncpy(event.event_name, argv[2], sizeof(event.event_name) - 1);
    strncpy(event.severity, argv[3], sizeof(event.severity) - 1);
    FTB_event_properties_t with = properties(1, argv[4]);
    MUST(FTB_Declare_publishable_events(handle, NULL, &event, 1) == FTB_SUCCESS);
    MUST(FTB_Publish(handle, argv[2], &with, &published) == FTB_SUCCESS);
    exit(0);
}
