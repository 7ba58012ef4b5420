/* Every function with everything that can be wrong, one thing at a time. */
#include "check.h"

static FTB_client_t good;
static FTB_client_handle_t handle, none;

static void connecting(void)
{
    FTB_client_t info;
    FTB_client_handle_t other;

    say("connect: handle NULL", FTB_Connect(&good, NULL));
    say("connect: info NULL", FTB_Connect(NULL, &other));
    info = good;
    strcpy(info.client_subscription_style, "");
    say("connect: no style", FTB_Connect(&info, &other));
    strcpy(info.client_subscription_style, "FTB_POLLING");
    say("connect: unknown style", FTB_Connect(&info, &other));
    memset(info.client_subscription_style, 'x', sizeof(info.client_subscription_style));
    say("connect: style without end", FTB_Connect(&info, &other));
    const char *spaces[] = {"", "a", "a.b", "a.b.", ".b.c", "a..c", "a.b.c.d", "a.b c.d", "a.b-c.d"};
    for (int i = 0; i < COUNT(spaces); i++) {
        char label[80];
        info = good;
        strcpy(info.event_space, spaces[i]);
        snprintf(label, sizeof(label), "connect: event space '%s'", spaces[i]);
        say(label, FTB_Connect(&info, &other));
    }
    memset(info.event_space, 'x', sizeof(info.event_space));
    say("connect: event space without end", FTB_Connect(&info, &other));
    info = good;
    memset(info.client_name, 'x', sizeof(info.client_name));
    say("connect: client name too long", FTB_Connect(&info, &other));
    info = good;
    memset(info.client_jobid, 'x', sizeof(info.client_jobid));
    memset(&other, 0, sizeof(other));
    say("connect: job id too long", FTB_Connect(&info, &other));
    printf("the handle was written before that: %d\n", other.valid);

    say("connect", FTB_Connect(&good, &handle));
    say("connect: again", FTB_Connect(&good, &other));
    info = good;
    strcpy(info.event_space, "other.CODES.Main");
    strcpy(info.client_name, "CODES");
    say("connect: again, other region and case", FTB_Connect(&info, &other));
    strcpy(info.client_name, "second");
    say("connect: another name", FTB_Connect(&info, &other));
    say("disconnect: the other", FTB_Disconnect(other));
    say("disconnect: the other again", FTB_Disconnect(other));
}

static void declaring(void)
{
    FTB_event_info_t events[120];
    memset(events, 0, sizeof(events));
    for (int i = 0; i < COUNT(events); i++) {
        sprintf(events[i].event_name, "EVENT_%d", i);
        strcpy(events[i].severity, "info");
    }
    say("declare: invalid handle", FTB_Declare_publishable_events(none, NULL, events, 1));
    say("declare: nothing", FTB_Declare_publishable_events(handle, NULL, events, 0));
    say("declare: less than nothing", FTB_Declare_publishable_events(handle, NULL, events, -5));
    say("declare: array NULL, none", FTB_Declare_publishable_events(handle, NULL, NULL, 0));
    say("declare: array NULL, one", FTB_Declare_publishable_events(handle, NULL, NULL, 1));
    say("declare: no such file", FTB_Declare_publishable_events(handle, "/nonexistent", NULL, 0));

    FTB_event_info_t event = events[0];
    memset(event.event_name, 'x', sizeof(event.event_name));
    say("declare: name too long", FTB_Declare_publishable_events(handle, NULL, &event, 1));
    strcpy(event.event_name, "a-b");
    say("declare: name with '-'", FTB_Declare_publishable_events(handle, NULL, &event, 1));
    strcpy(event.event_name, "");
    say("declare: empty name", FTB_Declare_publishable_events(handle, NULL, &event, 1));
    strcpy(event.event_name, "A");
    strcpy(event.severity, "all");
    say("declare: severity all", FTB_Declare_publishable_events(handle, NULL, &event, 1));
    strcpy(event.severity, "");
    say("declare: no severity", FTB_Declare_publishable_events(handle, NULL, &event, 1));
    memset(event.severity, 'x', sizeof(event.severity));
    say("declare: severity without end", FTB_Declare_publishable_events(handle, NULL, &event, 1));

    say("declare: one", FTB_Declare_publishable_events(handle, NULL, events, 1));
    FTB_event_info_t twice[2] = {events[0], events[1]};
    strcpy(twice[0].event_name, "event_0");
    say("declare: one again, and one behind it",
        FTB_Declare_publishable_events(handle, NULL, twice, 2));
    FTB_event_handle_t event_handle;
    say("publish: the one behind it", FTB_Publish(handle, "EVENT_1", NULL, &event_handle));
    /* With the empty name there are two; 98 fit. */
    say("declare: 98 more", FTB_Declare_publishable_events(handle, NULL, events + 1, 98));
    say("declare: the 101st", FTB_Declare_publishable_events(handle, NULL, events + 110, 1));
}

static void publishing(void)
{
    FTB_event_handle_t event;
    FTB_event_properties_t normal = properties(1, "payload"), response = properties(2, "");
    FTB_event_properties_t zero = properties(0, ""), three = properties(3, "");

    say("publish: invalid handle", FTB_Publish(none, "EVENT_0", &normal, &event));
    say("publish: event handle NULL", FTB_Publish(handle, "EVENT_0", &normal, NULL));
    say("publish: name NULL", FTB_Publish(handle, NULL, &normal, &event));
    say("publish: name empty", FTB_Publish(handle, "", &normal, &event));
    say("publish: name too long",
        FTB_Publish(handle, "12345678901234567890123456789012", &normal, &event));
    say("publish: not declared", FTB_Publish(handle, "EVENT_X", &normal, &event));
    say("publish: type 0", FTB_Publish(handle, "EVENT_0", &zero, &event));
    say("publish: type 3", FTB_Publish(handle, "EVENT_0", &three, &event));
    say("publish: normal", FTB_Publish(handle, "EVENT_0", &normal, &event));
    printf("seqnum %d\n", event.seqnum);
    say("publish: response, other case", FTB_Publish(handle, "event_0", &response, &event));
    say("publish: without properties", FTB_Publish(handle, "EVENT_0", NULL, &event));
    printf("seqnum %d\n", event.seqnum);
}

static int ignore(FTB_receive_event_t *event, void *arg)
{
    (void)event;
    (void)arg;
    return 0;
}

static void subscribing(void)
{
    FTB_subscribe_handle_t subscription, copy;
    FTB_receive_event_t event;

    say("subscribe: handle NULL", FTB_Subscribe(NULL, handle, "", NULL, NULL));
    say("subscribe: invalid handle", FTB_Subscribe(&subscription, none, "", NULL, NULL));
    say("subscribe: string NULL", FTB_Subscribe(&subscription, handle, NULL, NULL, NULL));
    say("subscribe: not a pair", FTB_Subscribe(&subscription, handle, "severity", NULL, NULL));
    say("subscribe: unknown key", FTB_Subscribe(&subscription, handle, "x=y", NULL, NULL));
    say("subscribe: bad value", FTB_Subscribe(&subscription, handle, "severity=x", NULL, NULL));
    say("subscribe: bad space", FTB_Subscribe(&subscription, handle, "event_space=a", NULL, NULL));
    say("subscribe: callback, only polling", FTB_Subscribe(&subscription, handle, "", ignore, NULL));
    say("subscribe", FTB_Subscribe(&subscription, handle, "jobid=nobody", NULL, NULL));
    copy = subscription;

    say("poll: event NULL", FTB_Poll_event(subscription, NULL));
    say("poll: nothing there", FTB_Poll_event(subscription, &event));
    copy.valid = 0;
    say("poll: invalid handle", FTB_Poll_event(copy, &event));
    copy = subscription;
    copy.subscription_event.seqnum = 999;
    say("poll: no such subscription", FTB_Poll_event(copy, &event));
    copy = subscription;
    strcpy(copy.client_handle.client_id.comp, "nobody");
    say("poll: no such client", FTB_Poll_event(copy, &event));

    say("unsubscribe: NULL", FTB_Unsubscribe(NULL));
    say("unsubscribe: no such client", FTB_Unsubscribe(&copy));
    copy = subscription;
    say("unsubscribe", FTB_Unsubscribe(&subscription));
    printf("valid %d\n", subscription.valid);
    say("unsubscribe: again", FTB_Unsubscribe(&subscription));
    say("unsubscribe: a copy", FTB_Unsubscribe(&copy));
    say("poll: unsubscribed", FTB_Poll_event(subscription, &event));

    FTB_client_handle_t quiet = connected("ftb.codes.quiet", "", "FTB_SUBSCRIPTION_NONE");
    say("subscribe: style NONE", FTB_Subscribe(&subscription, quiet, "", NULL, NULL));
    say("subscribe: style NONE, callback", FTB_Subscribe(&subscription, quiet, "", ignore, NULL));
    FTB_client_handle_t notified = connected("ftb.codes.told", "", "ftb_subscription_notify");
    say("subscribe: style NOTIFY", FTB_Subscribe(&subscription, notified, "", NULL, NULL));
    say("subscribe: style NOTIFY, callback",
        FTB_Subscribe(&subscription, notified, "jobid=nobody", ignore, NULL));
    say("poll: style NOTIFY", FTB_Poll_event(subscription, &event));
    say("disconnect: style NONE", FTB_Disconnect(quiet));
    say("disconnect: style NOTIFY", FTB_Disconnect(notified));
}

static void comparing(void)
{
    FTB_receive_event_t event;
    FTB_event_handle_t one, other;
    memset(&event, 0, sizeof(event));
    strcpy(event.event_space, "a.b.c");
    strcpy(event.event_name, "X");
    say("event handle: NULL", FTB_Get_event_handle(event, NULL));
    say("event handle", FTB_Get_event_handle(event, &one));
    other = one;
    say("compare: equal", FTB_Compare_event_handles(one, other));
    strcpy(other.event_name, "x");
    say("compare: other case", FTB_Compare_event_handles(one, other));
    other.seqnum++;
    say("compare: other number", FTB_Compare_event_handles(one, other));
    strcpy(event.event_space, "a.b");
    say("event handle: two parts", FTB_Get_event_handle(event, &one));
    memset(event.event_space, 'x', sizeof(event.event_space));
    say("event handle: space without end", FTB_Get_event_handle(event, &one));
}

int main(void)
{
    FTB_subscribe_handle_t subscription;
    FTB_event_handle_t event;
    good = client("ftb.codes.main", "codes", "FTB_SUBSCRIPTION_POLLING");
    memset(&none, 0, sizeof(none));
    memset(&handle, 0, sizeof(handle));
    handle.valid = 1;
    say("before connect: disconnect", FTB_Disconnect(handle));
    say("before connect: publish", FTB_Publish(handle, "X", NULL, &event));
    say("before connect: subscribe", FTB_Subscribe(&subscription, handle, "", NULL, NULL));
    say("before connect: declare", FTB_Declare_publishable_events(handle, NULL, NULL, 0));

    connecting();
    declaring();
    publishing();
    subscribing();
    comparing();

    say("disconnect: invalid handle", FTB_Disconnect(none));
    say("disconnect", FTB_Disconnect(handle));
    say("after disconnect: disconnect", FTB_Disconnect(handle));
    say("after disconnect: publish", FTB_Publish(handle, "EVENT_0", NULL, &event));
    say("after disconnect: subscribe", FTB_Subscribe(&subscription, handle, "", NULL, NULL));
    say("after disconnect: connect", FTB_Connect(&good, &handle));
    say("after disconnect: publish, not declared", FTB_Publish(handle, "EVENT_0", NULL, &event));
    say("disconnect", FTB_Disconnect(handle));
    return 0;
}
