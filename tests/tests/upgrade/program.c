/* A program of the previous release: publishes numbered events until the file argv[1] exists, and
 * counts what comes back to it. Says "ready", and in the end what it has seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <libftb.h>

#define SPACE "ftb.upgrade.c"
#define PAUSE_US 10000
/* Without an event for this time it gives up. */
#define PATIENCE_US 180000000L

#define MUST(call)                                                                                 \
    do {                                                                                           \
        int code = (call);                                                                         \
        if (code != FTB_SUCCESS) {                                                                 \
            printf("%s: code %d\n", #call, code);                                                  \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static long last, doubled, lost;

/* Reads all that has come. */
static void receive(FTB_subscribe_handle_t subscription)
{
    FTB_receive_event_t event;
    while (FTB_Poll_event(subscription, &event) == FTB_SUCCESS) {
        long number = atol(event.event_payload);
        if (number <= last)
            doubled++;
        else
            lost += number - last - 1;
        if (number > last)
            last = number;
    }
}

int main(int argc, char **argv)
{
    FTB_client_t info;
    FTB_client_handle_t handle;
    FTB_subscribe_handle_t subscription;
    FTB_event_handle_t published;
    FTB_event_info_t declared = {"NUMBER", "info"};
    FTB_event_properties_t properties;
    long number = 0, waited_us = 0, seen = 0;

    if (argc != 2)
        return 2;
    memset(&info, 0, sizeof(info));
    strcpy(info.event_space, SPACE);
    strcpy(info.client_name, "old");
    strcpy(info.client_subscription_style, "FTB_SUBSCRIPTION_POLLING");
    MUST(FTB_Connect(&info, &handle));
    MUST(FTB_Declare_publishable_events(handle, NULL, &declared, 1));
    MUST(FTB_Subscribe(&subscription, handle, "event_space=" SPACE, NULL, NULL));
    puts("ready");
    fflush(stdout);
    while (access(argv[1], F_OK) != 0) {
        memset(&properties, 0, sizeof(properties));
        properties.event_type = 1;
        snprintf(properties.event_payload, sizeof(properties.event_payload), "%ld", ++number);
        MUST(FTB_Publish(handle, "NUMBER", &properties, &published));
        receive(subscription);
        usleep(PAUSE_US);
    }
    while (last < number && waited_us < PATIENCE_US) {
        receive(subscription);
        waited_us = seen == last ? waited_us + PAUSE_US : 0;
        seen = last;
        usleep(PAUSE_US);
    }
    printf("published %ld, last %ld, doubled %ld, lost %ld\n", number, last, doubled, lost);
    MUST(FTB_Disconnect(handle));
    return 0;
}
