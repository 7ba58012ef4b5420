/* One rank of an all-to-all exchange, as the example of CIFTS FTB does it: publishes its events,
 * then polls until it has those of all ranks, its own included.
 * argv: rank, number of ranks, events of each rank. Says a line, reads one, goes on. */
#include "check.h"

static void barrier(const char *name)
{
    puts(name);
    fflush(stdout);
    await_line();
}

int main(int argc, char **argv)
{
    MUST(argc == 4);
    int rank = atoi(argv[1]), ranks = atoi(argv[2]), events = atoi(argv[3]);
    char name[16];
    sprintf(name, "rank%d", rank);
    const char *all = "event_space=ftb.ftb_examples.alltoall";
    FTB_client_handle_t handle =
        connected("ftb.ftb_examples.alltoall", name, "FTB_SUBSCRIPTION_POLLING");
    FTB_event_info_t declared = {"SIMPLE", "info"};
    FTB_subscribe_handle_t subscription;
    FTB_event_handle_t published;
    FTB_receive_event_t event;
    int *seen = calloc(ranks, sizeof(int));
    MUST(FTB_Declare_publishable_events(handle, NULL, &declared, 1) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&subscription, handle, all, NULL, NULL) == FTB_SUCCESS);
    barrier("subscribed");
    FTB_event_properties_t payload = properties(1, "");
    payload.event_payload[0] = (char)rank;
    for (int i = 0; i < events; i++)
        MUST(FTB_Publish(handle, "SIMPLE", &payload, &published) == FTB_SUCCESS);
    barrier("published");
    for (int i = 0; i < ranks * events; i++) {
        MUST(await(subscription, &event) == FTB_SUCCESS);
        int from = event.event_payload[0];
        MUST(from >= 0 && from < ranks);
        seen[from]++;
        MUST(event.seqnum == seen[from]);
    }
    for (int i = 0; i < ranks; i++)
        MUST(seen[i] == events);
    puts("exchanged");
    MUST(FTB_Disconnect(handle) == FTB_SUCCESS);
    free(seen);
    return 0;
}
