/* What an event name does to the other conditions: nothing, or, with FTB_MATCHING=cifts, what it did
 * in the original. */
#include "check.h"

int main(void)
{
    FTB_client_handle_t handle = connected("FTB.T.PUBR", "", "FTB_SUBSCRIPTION_POLLING");
    FTB_event_info_t events[] = {{"EVX", "warning"}, {"LAST", "info"}};
    FTB_event_handle_t published;
    FTB_subscribe_handle_t odd, last;
    FTB_receive_event_t received;
    MUST(FTB_Declare_publishable_events(handle, NULL, events, 2) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&odd, handle, "event_name=EVX,event_space=FTB.OTHER.COMP,severity=fatal",
                       NULL, NULL) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&last, handle, "event_name=LAST", NULL, NULL) == FTB_SUCCESS);
    MUST(FTB_Publish(handle, "EVX", NULL, &published) == FTB_SUCCESS);
    MUST(FTB_Publish(handle, "LAST", NULL, &published) == FTB_SUCCESS);
    MUST(await(last, &received) == FTB_SUCCESS);
    say("a fatal event of another space was wanted", FTB_Poll_event(odd, &received));
    MUST(FTB_Disconnect(handle) == FTB_SUCCESS);
    return 0;
}
