/* Random arguments from fixed seeds. Any code may come back; nothing may crash or hang.
 * argv[1]: how many calls. */
#include "check.h"

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % below;
}

static void noise(void *where, size_t size)
{
    unsigned char *bytes = where;
    uint32_t style = draw(4);
    for (size_t i = 0; i < size; i++)
        bytes[i] = style == 0   ? (unsigned char)draw(256)
                   : style == 1 ? (unsigned char)('a' + draw(3))
                   : style == 2 ? (unsigned char)"=,. \tall_severity\0"[draw(17)]
                                : (unsigned char)(draw(2) ? 0 : 0xff);
}

static const char *const words[] = {
    "",      "info",     "fatal",   "all",        "a.b.c",     "ftb.fuzz.x", "X",
    "=",     ",",        "==",      "severity",   "severity=", "jobid=1",    "event_space=a.b",
    "a.b.c", "%s%n%s%n", "../../x", "/dev/stdin", "event_name=X,severity=info"};

/* A text that ends, of any length up to `max`. */
static const char *text(char *buffer, size_t max)
{
    uint32_t what = draw(6);
    if (what == 0)
        return NULL;
    if (what <= 3) {
        snprintf(buffer, max, "%s%s%s", words[draw(COUNT(words))], draw(2) ? "" : ",",
                 draw(2) ? "" : words[draw(COUNT(words))]);
        return buffer;
    }
    size_t length = draw((uint32_t)max);
    noise(buffer, length);
    buffer[length] = 0;
    return buffer;
}

static void field(char *field, size_t size, const char *good)
{
    uint32_t what = draw(8);
    if (what == 0)
        noise(field, size);
    else if (what == 1)
        memset(field, 'x', size);
    else
        snprintf(field, size, "%s", what == 2 ? words[draw(COUNT(words))] : good);
}

static int on_event(FTB_receive_event_t *event, void *arg)
{
    (void)arg;
    noise(event, sizeof(*event));
    return (int)draw(100);
}

static FTB_client_handle_t clients[4];
static FTB_subscribe_handle_t subscriptions[8];
static FTB_event_handle_t events[4];
static FTB_receive_event_t received[4];
static FTB_event_info_t declared[128];
static char buffer[6000];

/* One of ours, broken or not. */
#define PICK(type, array)                                                                          \
    type picked = (array)[draw(COUNT(array))];                                                     \
    if (draw(6) == 0)                                                                              \
        noise(&picked, draw(2) ? sizeof(picked) : 8)

static int one_call(int *longest_waits)
{
    switch (draw(9)) {
    case 0: {
        FTB_client_t info;
        memset(&info, 0, sizeof(info));
        field(info.client_schema_ver, sizeof(info.client_schema_ver), "0.5");
        field(info.event_space, sizeof(info.event_space), draw(2) ? "ftb.fuzz.x" : "ftb.fuzz.y");
        field(info.client_name, sizeof(info.client_name), draw(2) ? "" : "me");
        field(info.client_jobid, sizeof(info.client_jobid), "1");
        field(info.client_subscription_style, sizeof(info.client_subscription_style),
              draw(2) ? "FTB_SUBSCRIPTION_BOTH" : "FTB_SUBSCRIPTION_POLLING");
        info.client_polling_queue_len = draw(2) ? 0 : (int)draw(1u << 31) * (draw(2) ? 1 : -1);
        return FTB_Connect(draw(20) ? &info : NULL, draw(20) ? &clients[draw(4)] : NULL);
    }
    case 1: {
        PICK(FTB_client_handle_t, clients);
        for (int i = 0; i < 3; i++) {
            FTB_event_info_t *info = &declared[draw(COUNT(declared))];
            field(info->event_name, sizeof(info->event_name), words[draw(COUNT(words))]);
            field(info->severity, sizeof(info->severity), "info");
        }
        int count = draw(3) ? (int)draw(COUNT(declared)) : -(int)draw(1u << 31);
        return FTB_Declare_publishable_events(picked, draw(4) ? NULL : text(buffer, sizeof(buffer)),
                                              draw(20) ? declared : NULL, count);
    }
    case 2: {
        PICK(FTB_client_handle_t, clients);
        FTB_event_properties_t properties;
        noise(&properties, sizeof(properties));
        if (draw(2))
            properties.event_type = 1 + (uint8_t)draw(2);
        return FTB_Publish(picked, draw(3) ? "X" : text(buffer, 64), draw(4) ? &properties : NULL,
                           draw(20) ? &events[draw(4)] : NULL);
    }
    case 3: {
        PICK(FTB_client_handle_t, clients);
        return FTB_Subscribe(draw(20) ? &subscriptions[draw(8)] : NULL, picked,
                             text(buffer, sizeof(buffer)), draw(2) ? on_event : NULL, buffer);
    }
    case 4: {
        if (draw(6) == 0)
            noise(&subscriptions[draw(8)], sizeof(subscriptions[0]));
        return FTB_Unsubscribe(draw(20) ? &subscriptions[draw(8)] : NULL);
    }
    case 5: {
        PICK(FTB_subscribe_handle_t, subscriptions);
        return FTB_Poll_event(picked, draw(20) ? &received[draw(4)] : NULL);
    }
    case 6: {
        if (draw(8))
            return 0; /* disconnecting waits for the agent: not too often */
        ++*longest_waits;
        PICK(FTB_client_handle_t, clients);
        return FTB_Disconnect(picked);
    }
    case 7: {
        PICK(FTB_receive_event_t, received);
        return FTB_Get_event_handle(picked, draw(20) ? &events[draw(4)] : NULL);
    }
    default: {
        PICK(FTB_event_handle_t, events);
        return FTB_Compare_event_handles(picked, events[draw(4)]);
    }
    }
}

int main(int argc, char **argv)
{
    MUST(argc == 2);
    int calls = atoi(argv[1]), disconnects = 0, known = 0;
    static int codes[32];
    for (int seed = 1; seed <= 4; seed++) {
        state = 0x9e3779b97f4a7c15ull * (uint64_t)seed;
        for (int i = 0; i < calls / 4; i++) {
            int code = one_call(&disconnects);
            MUST(code <= 0 && code >= -21);
            known += codes[-code]++ == 0;
        }
    }
    /* Calls that only fail test little: most codes must have been seen. */
    MUST(codes[0] > calls / 20);
    MUST(known >= 12);
    printf("%d calls\n", calls);
    return 0;
}
