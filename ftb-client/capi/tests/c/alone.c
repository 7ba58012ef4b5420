/* Without an agent: everything works, later. Says a line, reads one, goes on. */
#include "check.h"

static struct counter called = COUNTER;

static int on_event(FTB_receive_event_t *event, void *arg)
{
    (void)arg;
    printf("called: %s\n", event->event_name);
    fflush(stdout);
    count_up(&called);
    return 0;
}

int main(void)
{
    FTB_client_t info = client("ftb.alone.test", "alone", "FTB_SUBSCRIPTION_BOTH");
    FTB_client_handle_t handle;
    FTB_subscribe_handle_t polling, notify;
    FTB_event_handle_t published, rebuilt;
    FTB_event_info_t events[] = {{"EARLY", "info"}, {"LATE", "info"}, {"DEADLY", "fatal"}};
    FTB_receive_event_t event;
    say("connect", FTB_Connect(&info, &handle));
    say("declare", FTB_Declare_publishable_events(handle, NULL, events, COUNT(events)));
    say("subscribe polling", FTB_Subscribe(&polling, handle, "event_name=LATE", NULL, NULL));
    say("subscribe notify", FTB_Subscribe(&notify, handle, "event_name=EARLY", on_event, NULL));
    say("publish", FTB_Publish(handle, "EARLY", NULL, &published));
    say("publish fatal", FTB_Publish(handle, "DEADLY", NULL, &published));
    say("poll", FTB_Poll_event(polling, &event));
    puts("no agent");
    fflush(stdout);
    await_line();
    /* An agent is there now. The subscriptions are active when this comes back. */
    do {
        MUST(FTB_Publish(handle, "EARLY", NULL, &published) == FTB_SUCCESS);
        nap();
    } while (counted(&called) == 0);
    say("publish", FTB_Publish(handle, "LATE", NULL, &published));
    say("await", await(polling, &event));
    say("event handle", FTB_Get_event_handle(event, &rebuilt));
    say("compare", FTB_Compare_event_handles(published, rebuilt));
    say("disconnect", FTB_Disconnect(handle));

    say("connect again", FTB_Connect(&info, &handle));
    say("declare", FTB_Declare_publishable_events(handle, NULL, events, COUNT(events)));
    puts("agent");
    fflush(stdout);
    await_line();
    /* It was killed. */
    char zeros[FTB_MAX_PAYLOAD_DATA];
    memset(zeros, 'x', sizeof(zeros));
    FTB_event_properties_t full = properties(1, "");
    memcpy(full.event_payload, zeros, sizeof(zeros));
    int taken = 0;
    /* Far more than the buffer holds: older ones are given up, none is refused, nothing waits. */
    for (int i = 0; i < 20000; i++)
        taken += FTB_Publish(handle, "LATE", &full, &published) == FTB_SUCCESS;
    printf("taken %d\n", taken);
    for (int i = 0; i < 20000; i++)
        MUST(FTB_Publish(handle, "DEADLY", &full, &published) == FTB_SUCCESS);
    say("an info event among fatal ones", FTB_Publish(handle, "LATE", &full, &published));
    say("disconnect", FTB_Disconnect(handle));
    return 0;
}
