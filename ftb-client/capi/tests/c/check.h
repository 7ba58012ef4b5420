/* What the test programs have in common: they print what they see, the test compares it. */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libftb.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Long: it only bounds a test that fails. */
#define PATIENCE_S 1200

static const char *code_name(int code)
{
    static const char *names[] = {
        "FTB_SUCCESS", "FTB_ERR_GENERAL", "FTB_ERR_EVENTSPACE_FORMAT", "FTB_ERR_SUBSCRIPTION_STYLE",
        "FTB_ERR_INVALID_VALUE", "FTB_ERR_DUP_CALL", "FTB_ERR_NULL_POINTER",
        "FTB_ERR_NOT_SUPPORTED", "FTB_ERR_INVALID_FIELD", "FTB_ERR_INVALID_HANDLE",
        "FTB_ERR_DUP_EVENT", "FTB_ERR_INVALID_SCHEMA_FILE", "FTB_ERR_INVALID_EVENT_NAME",
        "FTB_ERR_INVALID_EVENT_TYPE", "FTB_ERR_SUBSCRIPTION_STR", "FTB_ERR_FILTER_ATTR",
        "FTB_ERR_FILTER_VALUE", "FTB_GOT_NO_EVENT", "FTB_FAILURE", "FTB_ERR_INVALID_PARAMETER",
        "FTB_ERR_NETWORK_GENERAL", "FTB_ERR_NETWORK_NO_ROUTE"};
    if (code > 0 || -code >= COUNT(names))
        return "a code that does not exist";
    return names[-code];
}

/* Prints what a call returned. */
static inline int say(const char *what, int code)
{
    printf("%-58s %s\n", what, code_name(code));
    fflush(stdout);
    return code;
}

/* Ends the program when something that must hold does not. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void nap(void)
{
    struct timespec a_moment = {0, 2000000};
    nanosleep(&a_moment, NULL);
}

/* Waits until the test lets the program go on. */
static inline void await_line(void)
{
    char line[64];
    MUST(fgets(line, sizeof(line), stdin));
}

static inline FTB_client_t client(const char *space, const char *name, const char *style)
{
    FTB_client_t info;
    memset(&info, 0, sizeof(info));
    strncpy(info.event_space, space, sizeof(info.event_space) - 1);
    strncpy(info.client_name, name, sizeof(info.client_name) - 1);
    strncpy(info.client_subscription_style, style, sizeof(info.client_subscription_style) - 1);
    return info;
}

static inline FTB_client_handle_t connected(const char *space, const char *name, const char *style)
{
    FTB_client_t info = client(space, name, style);
    FTB_client_handle_t handle;
    MUST(FTB_Connect(&info, &handle) == FTB_SUCCESS);
    return handle;
}

static inline FTB_event_properties_t properties(int type, const char *payload)
{
    FTB_event_properties_t properties;
    memset(&properties, 0, sizeof(properties));
    properties.event_type = (uint8_t)type;
    memcpy(properties.event_payload, payload, strlen(payload));
    return properties;
}

/* Polls until there is something. */
static inline int await(FTB_subscribe_handle_t handle, FTB_receive_event_t *event)
{
    time_t begin = time(NULL);
    for (;;) {
        int code = FTB_Poll_event(handle, event);
        if (code != FTB_GOT_NO_EVENT || time(NULL) - begin > PATIENCE_S)
            return code;
        nap();
    }
}

/* A number that one thread counts up and another waits for. */
struct counter {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int value;
};

#define COUNTER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}

static inline void count_up(struct counter *counter)
{
    pthread_mutex_lock(&counter->mutex);
    counter->value++;
    pthread_cond_broadcast(&counter->changed);
    pthread_mutex_unlock(&counter->mutex);
}

static inline int counted(struct counter *counter)
{
    pthread_mutex_lock(&counter->mutex);
    int value = counter->value;
    pthread_mutex_unlock(&counter->mutex);
    return value;
}

/* A callback that counts: its argument is a counter. */
static inline int on_event_count(FTB_receive_event_t *event, void *arg)
{
    (void)event;
    count_up(arg);
    return 0;
}

static inline void await_count(struct counter *counter, int wanted)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&counter->mutex);
    while (counter->value < wanted)
        MUST(pthread_cond_timedwait(&counter->changed, &counter->mutex, &end) == 0);
    pthread_mutex_unlock(&counter->mutex);
}

#endif
