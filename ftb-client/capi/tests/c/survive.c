/* The agent dies and comes back; the reader of standard error has gone. Signals are the program's own
 * business. Says a line, reads one, goes on. */
#include <signal.h>

#include "check.h"

static struct counter called = COUNTER;

static int on_event(FTB_receive_event_t *event, void *arg)
{
    sigset_t mask;
    (void)arg;
    /* No handler of the program runs on a thread of the library. */
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    MUST(sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGPIPE));
    if (strcmp(event->event_name, "AFTER") == 0)
        count_up(&called);
    return 0;
}

int main(void)
{
    FTB_client_handle_t handle = connected("ftb.survive.test", "", "FTB_SUBSCRIPTION_BOTH");
    FTB_event_info_t events[] = {{"BEFORE", "info"}, {"AFTER", "info"}};
    FTB_subscribe_handle_t notify, polling;
    FTB_event_handle_t published;
    FTB_receive_event_t event;
    sigset_t mask;
    MUST(FTB_Declare_publishable_events(handle, NULL, events, COUNT(events)) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&notify, handle, "event_name=AFTER", on_event, NULL) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&polling, handle, "event_name=BEFORE", NULL, NULL) == FTB_SUCCESS);
    /* The mask of the caller is as it was. */
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    MUST(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGPIPE));
    MUST(FTB_Publish(handle, "BEFORE", NULL, &published) == FTB_SUCCESS);
    MUST(await(polling, &event) == FTB_SUCCESS);
    puts("agent");
    fflush(stdout);
    await_line();
    /* Publishes into the socket of the dead, and on while there is none. */
    for (int i = 0; i < 200; i++) {
        MUST(FTB_Publish(handle, "BEFORE", NULL, &published) == FTB_SUCCESS);
        if (i % 10 == 0)
            nap();
    }
    puts("survived");
    fflush(stdout);
    await_line();
    MUST(FTB_Publish(handle, "AFTER", NULL, &published) == FTB_SUCCESS);
    await_count(&called, 1);
    printf("called %d\n", counted(&called));
    say("disconnect", FTB_Disconnect(handle));
    return 0;
}
