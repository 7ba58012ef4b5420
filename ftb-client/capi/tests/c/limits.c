/* Everything at its bound: names, clients, subscriptions, the number that wraps.
 * argv[1]: nothing is done more often than so, and then not all bounds are reached: for tools under
 * which a program takes a hundred times as long. */
#include "check.h"

static int most = 1 << 30;

static int at_most(int times)
{
    return times < most ? times : most;
}

static void filled(char *field, size_t size, char c)
{
    memset(field, c, size - 1);
    field[size - 1] = 0;
}

static void longest_names(void)
{
    FTB_client_t info = client("", "", "FTB_SUBSCRIPTION_POLLING");
    FTB_client_handle_t handle;
    FTB_event_info_t declared;
    FTB_subscribe_handle_t subscription;
    FTB_event_handle_t published, rebuilt;
    FTB_receive_event_t event;
    filled(info.event_space, sizeof(info.event_space), 's');
    info.event_space[1] = info.event_space[3] = '.';
    filled(info.client_name, sizeof(info.client_name), 'c');
    filled(info.client_jobid, sizeof(info.client_jobid), 'j');
    memset(&declared, 0, sizeof(declared));
    filled(declared.event_name, sizeof(declared.event_name), 'E');
    strcpy(declared.severity, "WaRnInG");
    say("connect", FTB_Connect(&info, &handle));
    say("declare", FTB_Declare_publishable_events(handle, NULL, &declared, 1));
    char string[300];
    sprintf(string, "event_space=%s,event_name=%s,client_name=%s,jobid=%s", info.event_space,
            declared.event_name, info.client_name, info.client_jobid);
    say("subscribe", FTB_Subscribe(&subscription, handle, string, NULL, NULL));
    say("publish", FTB_Publish(handle, declared.event_name, NULL, &published));
    say("await", await(subscription, &event));
    MUST(strcmp(event.event_space, info.event_space) == 0);
    MUST(strcmp(event.event_name, declared.event_name) == 0);
    MUST(strcmp(event.severity, declared.severity) == 0);
    MUST(strcmp(event.client_name, info.client_name) == 0);
    MUST(strcmp(event.client_jobid, info.client_jobid) == 0);
    say("event handle", FTB_Get_event_handle(event, &rebuilt));
    say("compare", FTB_Compare_event_handles(published, rebuilt));
    say("disconnect", FTB_Disconnect(handle));
}

/* A client with such a name and job publishes an event to itself: what comes has the same bytes. */
static void as_named(const char *space, const char *name, const char *job, const char *string)
{
    FTB_client_t info = client(space, name, "FTB_SUBSCRIPTION_POLLING");
    FTB_client_handle_t handle;
    FTB_subscribe_handle_t subscription;
    FTB_event_info_t declared = {"X", "info"};
    FTB_event_handle_t published;
    FTB_receive_event_t event;
    strcpy(info.client_jobid, job);
    say("connect", FTB_Connect(&info, &handle));
    MUST(FTB_Declare_publishable_events(handle, NULL, &declared, 1) == FTB_SUCCESS);
    say("subscribe", FTB_Subscribe(&subscription, handle, string, NULL, NULL));
    say("publish", FTB_Publish(handle, "x", NULL, &published));
    say("await", await(subscription, &event));
    MUST(strcmp(event.client_name, info.client_name) == 0);
    MUST(strcmp(event.client_jobid, info.client_jobid) == 0);
    say("disconnect", FTB_Disconnect(handle));
}

static void number_wraps(void)
{
    FTB_client_handle_t handle = connected("ftb.limits.wrap", "", "FTB_SUBSCRIPTION_NONE");
    FTB_event_info_t declared = {"X", "info"};
    FTB_event_handle_t published;
    MUST(FTB_Declare_publishable_events(handle, NULL, &declared, 1) == FTB_SUCCESS);
    int times = at_most(65537);
    for (int i = 1; i <= times; i++) {
        MUST(FTB_Publish(handle, "X", NULL, &published) == FTB_SUCCESS);
        MUST(published.seqnum == (uint16_t)i);
    }
    printf("after %d events: seqnum %d\n", times, published.seqnum);
    say("disconnect", FTB_Disconnect(handle));
}

static void many_subscriptions(void)
{
    static FTB_subscribe_handle_t subscriptions[1100];
    FTB_client_handle_t handle = connected("ftb.limits.subs", "", "FTB_SUBSCRIPTION_POLLING");
    int count = 0, code = FTB_SUCCESS;
    while (count < at_most(COUNT(subscriptions)) && code == FTB_SUCCESS) {
        code = FTB_Subscribe(&subscriptions[count], handle, "event_space=a.b.c", NULL, NULL);
        count += code == FTB_SUCCESS;
    }
    printf("%d subscriptions, then %s\n", count, code_name(code));
    for (int i = 0; i < count; i++)
        MUST(FTB_Unsubscribe(&subscriptions[i]) == FTB_SUCCESS);
    say("and one more", FTB_Subscribe(&subscriptions[0], handle, "", NULL, NULL));
    say("disconnect", FTB_Disconnect(handle));
}

/* Beside a subscription that stays; nothing is published. */
static void many_changes(void)
{
    FTB_client_handle_t handle = connected("ftb.limits.changes", "", "FTB_SUBSCRIPTION_POLLING");
    static FTB_subscribe_handle_t steady, changing;
    MUST(FTB_Subscribe(&steady, handle, "event_name=A", NULL, NULL) == FTB_SUCCESS);
    int taken = 0;
    for (int i = 0; i < at_most(400); i++) {
        taken += FTB_Subscribe(&changing, handle, "event_name=B", NULL, NULL) == FTB_SUCCESS;
        FTB_Unsubscribe(&changing);
    }
    printf("subscribed and unsubscribed %d times\n", taken);
    say("disconnect", FTB_Disconnect(handle));
}

static void many_clients(void)
{
    static FTB_client_handle_t handles[300];
    int count = 0, code = FTB_SUCCESS;
    while (count < at_most(COUNT(handles)) && code == FTB_SUCCESS) {
        char name[16];
        sprintf(name, "c%d", count);
        FTB_client_t info = client("ftb.limits.clients", name, "FTB_SUBSCRIPTION_NONE");
        code = FTB_Connect(&info, &handles[count]);
        count += code == FTB_SUCCESS;
    }
    printf("%d clients, then %s\n", count, code_name(code));
    for (int i = 0; i < count; i++)
        MUST(FTB_Disconnect(handles[i]) == FTB_SUCCESS);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        most = atoi(argv[1]);
    longest_names();
    as_named("ftb.limits.bytes", "mvapich2 2.3.7", "trial-7 (x)", "severity=info");
    /* As a program has them that never set them. */
    as_named("ftb.limits.unset", "\001\033[1m", "\t\n\177", "");
    number_wraps();
    many_subscriptions();
    many_changes();
    many_clients();
    return 0;
}
