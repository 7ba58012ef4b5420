/* Gaps as a program sees them. */
#include <stddef.h>

#include "check.h"
#include "ftbx.h"

static FTB_client_handle_t publisher, poller;

static void publish(const char *name, int count)
{
    FTB_event_handle_t handle;
    for (int i = 0; i < count; i++)
        MUST(FTB_Publish(publisher, name, NULL, &handle) == FTB_SUCCESS);
}

static void show(const char *what, FTB_subscribe_handle_t subscription)
{
    FTBX_gap_t gap;
    while (FTBX_Poll_gap(subscription, &gap) == FTB_SUCCESS)
        printf("%s: %d events in %d gaps, reason %d, at least %d, highest severity %s\n", what,
               (int)gap.count, (int)gap.gaps, (int)gap.reason, (int)gap.at_least, gap.severity);
}

/* More events than the queue holds, the worst first: it drops by severity. */
static void overflow(void)
{
    FTB_client_t info = client("ftb.gaps.poll", "", "FTB_SUBSCRIPTION_POLLING");
    FTB_subscribe_handle_t all, infos, last;
    FTB_receive_event_t event;
    FTBX_gap_t gap;
    int fatal = 0, error = 0, rest = 0;
    info.client_polling_queue_len = 10;
    MUST(FTB_Connect(&info, &poller) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&all, poller, "event_space=ftb.gaps.pub", NULL, NULL) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&infos, poller, "severity=info", NULL, NULL) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&last, poller, "event_name=LAST", NULL, NULL) == FTB_SUCCESS);
    say("gap of a subscription without gaps", FTBX_Poll_gap(all, &gap));
    say("gap into NULL", FTBX_Poll_gap(all, NULL));
    publish("FATAL", 5);
    publish("ERROR", 5);
    publish("INFO", 100);
    publish("LAST", 1);
    MUST(await(last, &event) == FTB_SUCCESS);
    while (FTB_Poll_event(all, &event) == FTB_SUCCESS) {
        fatal += strcmp(event.severity, "fatal") == 0;
        error += strcmp(event.severity, "error") == 0;
        rest += strcmp(event.severity, "info") == 0;
    }
    printf("kept: %d fatal, %d error, %d info\n", fatal, error, rest);
    show("all", all);
    show("infos", infos);
    show("last", last);
    say("gap that was taken", FTBX_Poll_gap(all, &gap));
    MUST(FTB_Unsubscribe(&infos) == FTB_SUCCESS);
    say("gap of a subscription that ended", FTBX_Poll_gap(infos, &gap));
    MUST(FTB_Disconnect(poller) == FTB_SUCCESS);
    say("gap of a client that disconnected", FTBX_Poll_gap(all, &gap));
}

int main(void)
{
    FTB_event_info_t events[] = {
        {"FATAL", "fatal"}, {"ERROR", "error"}, {"INFO", "info"}, {"LAST", "fatal"}};
    printf("size %d: count %d, gaps %d, reason %d, at_least %d, severity %d\n",
           (int)sizeof(FTBX_gap_t), (int)offsetof(FTBX_gap_t, count),
           (int)offsetof(FTBX_gap_t, gaps),
           (int)offsetof(FTBX_gap_t, reason), (int)offsetof(FTBX_gap_t, at_least),
           (int)offsetof(FTBX_gap_t, severity));
    publisher = connected("ftb.gaps.pub", "", "FTB_SUBSCRIPTION_NONE");
    MUST(FTB_Declare_publishable_events(publisher, NULL, events, COUNT(events)) == FTB_SUCCESS);
    overflow();
    say("disconnect", FTB_Disconnect(publisher));
    return 0;
}
