/* What callbacks may do, and who gets an event when several want it. */
#include "check.h"

static FTB_client_handle_t both;
static FTB_subscribe_handle_t first, second, polling, once;
static struct counter firsts = COUNTER, seconds = COUNTER, onces = COUNTER, answers = COUNTER;
static struct counter lasts = COUNTER, asked = COUNTER;

static int on_first(FTB_receive_event_t *event, void *arg)
{
    (void)event;
    (void)arg;
    count_up(&firsts);
    return -1; /* means nothing */
}

static int on_second(FTB_receive_event_t *event, void *arg)
{
    (void)event;
    (void)arg;
    count_up(&seconds);
    return 0;
}

/* Unsubscribes itself while more events are queued. */
static int on_once(FTB_receive_event_t *event, void *arg)
{
    (void)arg;
    if (counted(&onces) == 0) {
        printf("in callback: %s\n", event->event_name);
        say("in callback: unsubscribe", FTB_Unsubscribe(&once));
    }
    count_up(&onces);
    return 0;
}

/* Publishes and subscribes. */
static int on_question(FTB_receive_event_t *event, void *arg)
{
    FTB_client_handle_t *handle = arg;
    FTB_event_handle_t published;
    FTB_event_properties_t answer = properties(2, event->event_payload);
    FTB_subscribe_handle_t subscription;
    await_count(&asked, 1);
    say("in callback: publish", FTB_Publish(*handle, "ANSWER", &answer, &published));
    say("in callback: subscribe",
        FTB_Subscribe(&subscription, *handle, "event_name=nothing", on_second, NULL));
    say("in callback: unsubscribe another", FTB_Unsubscribe(&subscription));
    count_up(&answers);
    return 0;
}

static int on_last(FTB_receive_event_t *event, void *arg)
{
    (void)event;
    say("in callback: disconnect", FTB_Disconnect(*(FTB_client_handle_t *)arg));
    count_up(&lasts);
    return 0;
}

static void publish(const char *name, int times)
{
    FTB_event_handle_t handle;
    for (int i = 0; i < times; i++)
        MUST(FTB_Publish(both, name, NULL, &handle) == FTB_SUCCESS);
}

int main(void)
{
    FTB_receive_event_t event;
    both = connected("ftb.callbacks.both", "", "FTB_SUBSCRIPTION_BOTH");
    FTB_event_info_t events[] = {{"A", "info"},        {"B", "info"},     {"ONCE", "info"},
                                 {"QUESTION", "info"}, {"ANSWER", "info"}, {"LAST", "info"},
                                 {"MARK", "info"}};
    MUST(FTB_Declare_publishable_events(both, NULL, events, COUNT(events)) == FTB_SUCCESS);

    /* The first callback that wants an event gets it alone; who polls gets what no callback wants. */
    say("subscribe polling", FTB_Subscribe(&polling, both, "event_space=ftb.callbacks.all", NULL, NULL));
    say("subscribe first", FTB_Subscribe(&first, both, "event_name=A", on_first, NULL));
    say("subscribe second",
        FTB_Subscribe(&second, both, "event_space=ftb.callbacks.both,event_name=a", on_second, NULL));
    publish("A", 3);
    publish("B", 1);
    await_count(&firsts, 3);
    say("await", await(polling, &event));
    printf("polled %s, first %d, second %d\n", event.event_name, counted(&firsts), counted(&seconds));
    say("unsubscribe first", FTB_Unsubscribe(&first));
    publish("A", 2);
    await_count(&seconds, 2);
    say("unsubscribe second", FTB_Unsubscribe(&second));
    publish("A", 1);
    say("await", await(polling, &event));
    printf("polled %s, first %d, second %d\n", event.event_name, counted(&firsts), counted(&seconds));

    /* Two that differ only in the client's name are two. */
    say("subscribe first", FTB_Subscribe(&first, both, "event_name=A,client_name=x", on_first, NULL));
    say("subscribe second", FTB_Subscribe(&second, both, "event_name=A", on_second, NULL));
    publish("A", 1);
    await_count(&seconds, 3);
    printf("first %d, second %d\n", counted(&firsts), counted(&seconds));
    say("unsubscribe first", FTB_Unsubscribe(&first));
    say("unsubscribe second", FTB_Unsubscribe(&second));

    /* Unsubscribing in the callback while more are queued. */
    say("subscribe once", FTB_Subscribe(&once, both, "event_name=ONCE", on_once, NULL));
    publish("ONCE", 50);
    publish("MARK", 1);
    do
        MUST(await(polling, &event) == FTB_SUCCESS);
    while (strcmp(event.event_name, "MARK") != 0);
    await_count(&onces, 1);
    printf("once: called %d\n", counted(&onces));

    /* Publishing, subscribing, unsubscribing in a callback. */
    FTB_client_handle_t other = connected("ftb.callbacks.other", "", "FTB_SUBSCRIPTION_NOTIFY");
    MUST(FTB_Declare_publishable_events(other, NULL, events, COUNT(events)) == FTB_SUCCESS);
    say("subscribe question", FTB_Subscribe(&first, other, "event_name=QUESTION", on_question, &other));
    FTB_event_properties_t question = properties(1, "why?");
    FTB_event_handle_t handle;
    say("publish question", FTB_Publish(both, "QUESTION", &question, &handle));
    count_up(&asked);
    await_count(&answers, 1);
    do
        MUST(await(polling, &event) == FTB_SUCCESS);
    while (strcmp(event.event_name, "ANSWER") != 0);
    printf("answer '%s' type %d from %s\n", event.event_payload, event.event_type, event.event_space);

    /* Disconnecting in a callback. */
    say("subscribe last", FTB_Subscribe(&second, other, "event_name=LAST", on_last, &other));
    publish("LAST", 20);
    await_count(&lasts, 1);
    say("publish after that", FTB_Publish(other, "A", NULL, &handle));
    say("disconnect", FTB_Disconnect(both));
    printf("last: called %d\n", counted(&lasts));
    return 0;
}
