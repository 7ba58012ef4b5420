/* A process that forks after it has connected. */
#include <sys/wait.h>

#include "check.h"

static FTB_event_info_t event = {"X", "info"};
static struct counter called = COUNTER;

static void *publish_on(void *arg)
{
    FTB_client_handle_t handle = *(FTB_client_handle_t *)arg;
    FTB_event_handle_t published;
    for (int i = 0; i < 500; i++)
        MUST(FTB_Publish(handle, "X", NULL, &published) == FTB_SUCCESS);
    return NULL;
}

static int child(FTB_client_handle_t handle, FTB_subscribe_handle_t subscription)
{
    FTB_event_handle_t published;
    FTB_receive_event_t received;
    FTB_subscribe_handle_t own;
    MUST(FTB_Publish(handle, "X", NULL, &published) == FTB_ERR_INVALID_HANDLE);
    MUST(FTB_Poll_event(subscription, &received) == FTB_ERR_INVALID_HANDLE);
    MUST(FTB_Unsubscribe(&subscription) == FTB_ERR_INVALID_HANDLE);
    MUST(FTB_Disconnect(handle) == FTB_ERR_INVALID_HANDLE);
    MUST(counted(&called) == 0);
    /* It is a client of its own when it connects. */
    handle = connected("ftb.forked.test", "", "FTB_SUBSCRIPTION_BOTH");
    MUST(FTB_Declare_publishable_events(handle, NULL, &event, 1) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&own, handle, "event_name=X", on_event_count, &called) == FTB_SUCCESS);
    MUST(FTB_Publish(handle, "X", NULL, &published) == FTB_SUCCESS);
    MUST(published.location_id.pid == getpid());
    await_count(&called, 1);
    MUST(FTB_Disconnect(handle) == FTB_SUCCESS);
    return 7;
}

int main(void)
{
    FTB_client_handle_t handle = connected("ftb.forked.test", "", "FTB_SUBSCRIPTION_BOTH");
    FTB_subscribe_handle_t polling;
    FTB_receive_event_t received;
    FTB_event_handle_t published;
    MUST(FTB_Declare_publishable_events(handle, NULL, &event, 1) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&polling, handle, "event_name=Y", NULL, NULL) == FTB_SUCCESS);

    /* While other threads are in the library, so that its locks may be held. */
    pthread_t threads[4];
    for (int i = 0; i < COUNT(threads); i++)
        MUST(pthread_create(&threads[i], NULL, publish_on, &handle) == 0);
    for (int i = 0; i < 8; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(handle, polling));
        int status = 0;
        MUST(waitpid(pid, &status, 0) == pid);
        printf("child %d: exit code %d\n", i, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        fflush(stdout);
    }
    for (int i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);

    /* A child that ends by exit() does not touch what is its parent's. */
    pid_t pid = fork();
    if (pid == 0)
        exit(3);
    int status = 0;
    MUST(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);

    FTB_event_info_t more = {"Y", "info"};
    say("parent: declare", FTB_Declare_publishable_events(handle, NULL, &more, 1));
    say("parent: publish", FTB_Publish(handle, "Y", NULL, &published));
    say("parent: await", await(polling, &received));
    say("parent: disconnect", FTB_Disconnect(handle));
    return 0;
}
