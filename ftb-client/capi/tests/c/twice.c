/* Two copies of the library in one process, and one that is closed while it works. */
#include <dlfcn.h>

#include "check.h"

struct library {
    void *loaded;
    int (*connect)(const FTB_client_t *, FTB_client_handle_t *);
    int (*declare)(FTB_client_handle_t, const char *, const FTB_event_info_t *, int);
    int (*publish)(FTB_client_handle_t, const char *, const FTB_event_properties_t *,
                   FTB_event_handle_t *);
    int (*subscribe)(FTB_subscribe_handle_t *, FTB_client_handle_t, const char *,
                     int (*)(FTB_receive_event_t *, void *), void *);
    int (*disconnect)(FTB_client_handle_t);
};

static void *symbol(void *loaded, const char *name)
{
    void *found = dlsym(loaded, name);
    MUST(found);
    return found;
}

static struct library load(const char *path)
{
    struct library library;
    library.loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library.loaded)
        puts(dlerror());
    MUST(library.loaded);
    *(void **)&library.connect = symbol(library.loaded, "FTB_Connect");
    *(void **)&library.declare = symbol(library.loaded, "FTB_Declare_publishable_events");
    *(void **)&library.publish = symbol(library.loaded, "FTB_Publish");
    *(void **)&library.subscribe = symbol(library.loaded, "FTB_Subscribe");
    *(void **)&library.disconnect = symbol(library.loaded, "FTB_Disconnect");
    return library;
}

static struct counter called = COUNTER;

int main(int argc, char **argv)
{
    MUST(argc == 3);
    struct library one = load(argv[1]), other = load(argv[2]);
    MUST(*(void **)&one.connect != *(void **)&other.connect);
    FTB_client_t info = client("ftb.twice.test", "twice", "FTB_SUBSCRIPTION_NOTIFY");
    FTB_client_handle_t a, b;
    FTB_subscribe_handle_t subscription;
    FTB_event_handle_t published;
    FTB_event_info_t event = {"X", "info"};
    say("connect with one", one.connect(&info, &a));
    say("connect with the other", other.connect(&info, &b));
    say("subscribe with the other", other.subscribe(&subscription, b, "event_name=X", on_event_count, &called));
    say("declare with one", one.declare(a, NULL, &event, 1));
    say("publish with one", one.publish(a, "X", NULL, &published));
    await_count(&called, 1);
    say("disconnect from one", one.disconnect(a));
    printf("close one: %d\n", dlclose(one.loaded));
    /* Connected, with threads of its own, and events under way. */
    say("declare with the other", other.declare(b, NULL, &event, 1));
    say("publish with the other", other.publish(b, "X", NULL, &published));
    printf("close the other: %d\n", dlclose(other.loaded));
    await_count(&called, 2);
    puts("both are closed, and it still was called");
    return 0;
}
