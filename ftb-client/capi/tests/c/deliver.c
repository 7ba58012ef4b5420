/* What is published arrives: every field, to the byte, for polling and callbacks. */
#include "check.h"

static struct counter arrived = COUNTER;
static FTB_receive_event_t seen[8];

static int keep(FTB_receive_event_t *event, void *arg)
{
    MUST(arg == &seen);
    MUST(counted(&arrived) < COUNT(seen));
    seen[counted(&arrived)] = *event;
    count_up(&arrived);
    return 0;
}

static void show(const FTB_receive_event_t *event)
{
    printf("%s %s %s jobid '%s' client '%s' ext %d seqnum %d type %d payload '%s'\n",
           event->event_space, event->event_name, event->severity, event->client_jobid,
           event->client_name, event->client_extension, event->seqnum, event->event_type,
           event->event_payload);
    MUST(event->incoming_src.pid == getpid());
    MUST(strlen(event->incoming_src.hostname) > 0);
    MUST(strlen(event->incoming_src.pid_starttime) > 0);
}

int main(void)
{
    FTB_client_t info = client("FTB.Deliver.Pub", "the publisher", "FTB_SUBSCRIPTION_NONE");
    FTB_client_handle_t publisher;
    strcpy(info.client_jobid, "job-17");
    say("connect publisher", FTB_Connect(&info, &publisher));
    FTB_event_info_t events[] = {{"Mixed_Case", "INFO"}, {"OTHER", "fatal"}, {"BINARY", "Warning"}};
    say("declare", FTB_Declare_publishable_events(publisher, NULL, events, COUNT(events)));

    FTB_client_handle_t poller = connected("FTB.Deliver.Poll", "", "FTB_SUBSCRIPTION_POLLING");
    FTB_client_handle_t notified = connected("FTB.Deliver.Note", "", "FTB_SUBSCRIPTION_NOTIFY");
    FTB_subscribe_handle_t polling, notify, later;
    say("subscribe polling", FTB_Subscribe(&polling, poller, "jobid=JOB-17", NULL, NULL));
    say("subscribe notify",
        FTB_Subscribe(&notify, notified, "event_space=ftb.deliver.all", keep, &seen));

    FTB_event_handle_t handle, rebuilt;
    FTB_event_properties_t first = properties(1, "hello");
    FTB_receive_event_t event;
    say("publish", FTB_Publish(publisher, "mixed_case", &first, &handle));
    say("await", await(polling, &event));
    show(&event);
    say("event handle", FTB_Get_event_handle(event, &rebuilt));
    say("compare with the publisher's", FTB_Compare_event_handles(handle, rebuilt));
    await_count(&arrived, 1);
    show(&seen[0]);
    say("event handle of the callback's", FTB_Get_event_handle(seen[0], &rebuilt));
    say("compare with the publisher's", FTB_Compare_event_handles(handle, rebuilt));

    /* A response carries the handle of what it answers. */
    FTB_event_properties_t response;
    memset(&response, 0, sizeof(response));
    response.event_type = 2;
    MUST(sizeof(rebuilt) + sizeof(uint32_t) <= sizeof(response.event_payload));
    memcpy(response.event_payload, &rebuilt, sizeof(rebuilt));
    FTB_event_handle_t second;
    say("publish response", FTB_Publish(publisher, "OTHER", &response, &second));
    say("await", await(polling, &event));
    MUST(event.event_type == 2);
    FTB_event_handle_t answered;
    memcpy(&answered, event.event_payload, sizeof(answered));
    say("it answers the first", FTB_Compare_event_handles(answered, handle));
    say("it is not the first", FTB_Compare_event_handles(second, handle));

    /* All bytes, zeros inside and at the end. */
    FTB_event_properties_t binary;
    binary.event_type = 1;
    for (int i = 0; i < FTB_MAX_PAYLOAD_DATA; i++)
        binary.event_payload[i] = (char)(i * 7);
    say("publish binary", FTB_Publish(publisher, "BINARY", &binary, &handle));
    say("await", await(polling, &event));
    MUST(memcmp(event.event_payload, binary.event_payload, FTB_MAX_PAYLOAD_DATA) == 0);
    memset(binary.event_payload + 100, 0, FTB_MAX_PAYLOAD_DATA - 100);
    say("publish binary, zeros at the end", FTB_Publish(publisher, "BINARY", &binary, &handle));
    say("await", await(polling, &event));
    MUST(memcmp(event.event_payload, binary.event_payload, FTB_MAX_PAYLOAD_DATA) == 0);
    printf("%s %s\n", event.event_name, event.severity);
    say("publish without properties", FTB_Publish(publisher, "BINARY", NULL, &handle));
    say("await", await(polling, &event));
    for (int i = 0; i < FTB_MAX_PAYLOAD_DATA; i++)
        MUST(event.event_payload[i] == 0);
    printf("type %d seqnum %d\n", event.event_type, event.seqnum);
    await_count(&arrived, 5);

    /* No history: who comes later gets only what comes later. */
    say("subscribe later", FTB_Subscribe(&later, poller, "event_name=other", NULL, NULL));
    say("poll later", FTB_Poll_event(later, &event));
    say("publish", FTB_Publish(publisher, "OTHER", &first, &handle));
    say("await later", await(later, &event));
    show(&event);

    say("disconnect publisher", FTB_Disconnect(publisher));
    say("disconnect poller", FTB_Disconnect(poller));
    say("disconnect notified", FTB_Disconnect(notified));
    return 0;
}
