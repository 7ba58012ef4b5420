/* Publishes 1,000 events and a fatal one, and ends without having disconnected.
 * argv[1]: the number of clients that do so. */
#include "check.h"

int main(int argc, char **argv)
{
    MUST(argc == 2);
    FTB_event_info_t events[] = {{"NEWS", "info"}, {"DEADLY", "fatal"}};
    FTB_event_handle_t published;
    for (int client = 0; client < atoi(argv[1]); client++) {
        char name[16];
        snprintf(name, sizeof(name), "client%hhd", (signed char)client);
        FTB_client_handle_t handle = connected("ftb.unheard.test", name, "FTB_SUBSCRIPTION_NONE");
        MUST(FTB_Declare_publishable_events(handle, NULL, events, COUNT(events)) == FTB_SUCCESS);
        for (int i = 0; i < 1000; i++)
            MUST(FTB_Publish(handle, "NEWS", NULL, &published) == FTB_SUCCESS);
        MUST(FTB_Publish(handle, "DEADLY", NULL, &published) == FTB_SUCCESS);
    }
    exit(0);
}
