/* Polling queues: their length, what happens when one is full, who shares it. */
#include "check.h"

static FTB_client_handle_t publisher, poller;
static FTB_subscribe_handle_t all, marks;

static void publish(int from, int count)
{
    FTB_event_handle_t handle;
    for (int i = 0; i < count; i++) {
        char payload[32];
        sprintf(payload, "%d", from + i);
        FTB_event_properties_t numbered = properties(1, payload);
        MUST(FTB_Publish(publisher, i % 2 ? "ODD" : "EVEN", &numbered, &handle) == FTB_SUCCESS);
    }
}

static void try(int length, int count)
{
    FTB_client_t info = client("ftb.queue.poll", "", "FTB_SUBSCRIPTION_POLLING");
    FTB_receive_event_t event;
    info.client_polling_queue_len = length;
    MUST(FTB_Connect(&info, &poller) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&all, poller, "event_space=ftb.queue.pub", NULL, NULL) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&marks, poller, "event_name=odd", NULL, NULL) == FTB_SUCCESS);
    publish(0, count);
    /* No call shows how full the queue is: its newest event says that all others have come. */
    FTB_subscribe_handle_t last;
    MUST(FTB_Subscribe(&last, poller, "event_name=LAST", NULL, NULL) == FTB_SUCCESS);
    FTB_event_handle_t handle;
    MUST(FTB_Publish(publisher, "LAST", NULL, &handle) == FTB_SUCCESS);
    MUST(await(last, &event) == FTB_SUCCESS);
    int odd = 0, rest = 0, begin = -1, end = -1;
    while (FTB_Poll_event(marks, &event) == FTB_SUCCESS)
        odd++;
    while (FTB_Poll_event(all, &event) == FTB_SUCCESS) {
        end = atoi(event.event_payload);
        if (rest++ == 0)
            begin = end;
    }
    printf("length %d, published %d and one: odd %d, rest %d from %d to %d\n", length, count, odd,
           rest, begin, end);
    MUST(FTB_Disconnect(poller) == FTB_SUCCESS);
}

int main(void)
{
    publisher = connected("ftb.queue.pub", "", "FTB_SUBSCRIPTION_NONE");
    FTB_event_info_t events[] = {{"EVEN", "info"}, {"ODD", "info"}, {"LAST", "info"}};
    MUST(FTB_Declare_publishable_events(publisher, NULL, events, COUNT(events)) == FTB_SUCCESS);
    try(0, 40);
    try(0, 200);
    try(-7, 200);
    try(5, 200);
    try(1, 10);
    try(1000, 500);
    say("disconnect", FTB_Disconnect(publisher));
    return 0;
}
