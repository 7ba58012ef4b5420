/* Subscription strings: what is accepted, and with which code the rest is refused. */
#include "check.h"

static char *repeated(const char *key, char c, int times)
{
    static char text[256];
    int length = sprintf(text, "%s=", key);
    memset(text + length, c, times);
    text[length + times] = 0;
    return text;
}

static FTB_client_handle_t handle;

static void try(const char *string)
{
    FTB_subscribe_handle_t subscription;
    char label[200];
    snprintf(label, sizeof(label), "\"%s\"", string);
    if (say(label, FTB_Subscribe(&subscription, handle, string, NULL, NULL)) == FTB_SUCCESS) {
        FTB_event_t *event = &subscription.subscription_event;
        printf("    %s.%s.%s %s %s %s %s %s\n", event->region, event->comp_cat, event->comp,
               event->event_name, event->severity, event->client_jobid, event->client_name,
               event->hostname);
        MUST(FTB_Unsubscribe(&subscription) == FTB_SUCCESS);
    }
}

int main(void)
{
    handle = connected("ftb.grammar.test", "", "FTB_SUBSCRIPTION_POLLING");
    const char *strings[] = {
        "", " ", "severity", "severity=", "=info", "a==b", "severity=info", "SEVERITY=Fatal",
        " \tseverity \t= all\t", "severity=info=x", "severity=info,severity=info",
        "severity=info,SEVERITY=info", ",severity=info", "severity=info,", "severity=info,,jobid=1",
        ",", "foo=bar", "hostname=h", "event_type=1", "sev erity=info", "severity=bad",
        "severity=in fo", "severity=info jobid=1", "severity=info;jobid=1", "severity>=error",
        "event_name=bad-name!", "event_name=a b", "event_name=ALL", "jobid=4,client_name=x",
        "jobid=trial-7", "host_name=node07", "event_space=a.b.c", "event_space=ftb.all.watchdog",
        "event_space=ALL.All.all", "event_space=a.b.*", "event_space=a.b", "event_space=all",
        "event_space=a.b.c.d", "event_space=a..c", "event_space=a.b. c",
        "severity=info,event_space=a.b.c,jobid=1,host_name=h,event_name=e,client_name=c",
        "a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10", "a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10,k=11"};
    for (int i = 0; i < COUNT(strings); i++)
        try(strings[i]);
    try(repeated("event_name", 'e', 31));
    try(repeated("event_name", 'e', 32));
    try(repeated("jobid", 'j', 15));
    try(repeated("jobid", 'j', 16));
    try(repeated("client_name", 'c', 15));
    try(repeated("client_name", 'c', 16));
    try(repeated("host_name", 'h', 63));
    try(repeated("host_name", 'h', 64));
    try(repeated("event_space", 'x', 64));
    char *endless = malloc(100001);
    memset(endless, 'x', 100000);
    endless[100000] = 0;
    FTB_subscribe_handle_t subscription;
    say("100,000 characters", FTB_Subscribe(&subscription, handle, endless, NULL, NULL));
    free(endless);
    say("disconnect", FTB_Disconnect(handle));
    return 0;
}
