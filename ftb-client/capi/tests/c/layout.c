/* Constants, sizes and offsets as a C compiler sees the headers. */
#include <stddef.h>

#include "check.h"
/* Under all its names, and twice. */
#include "ftb.h"
#include "libftb.h"

#define SIZE(type) printf("%s size %zu align %zu\n", #type, sizeof(type), _Alignof(type))
#define FIELD(type, field)                                                                         \
    printf("  %s %zu+%zu\n", #field, offsetof(type, field), sizeof(((type *)0)->field))
#define VALUE(constant) printf("%s %d\n", #constant, (int)(constant))

static void constants(void)
{
    VALUE(FTB_SUCCESS);
    VALUE(FTB_ERR_GENERAL);
    VALUE(FTB_ERR_EVENTSPACE_FORMAT);
    VALUE(FTB_ERR_SUBSCRIPTION_STYLE);
    VALUE(FTB_ERR_INVALID_VALUE);
    VALUE(FTB_ERR_DUP_CALL);
    VALUE(FTB_ERR_NULL_POINTER);
    VALUE(FTB_ERR_NOT_SUPPORTED);
    VALUE(FTB_ERR_INVALID_FIELD);
    VALUE(FTB_ERR_INVALID_HANDLE);
    VALUE(FTB_ERR_DUP_EVENT);
    VALUE(FTB_ERR_INVALID_SCHEMA_FILE);
    VALUE(FTB_ERR_INVALID_EVENT_NAME);
    VALUE(FTB_ERR_INVALID_EVENT_TYPE);
    VALUE(FTB_ERR_SUBSCRIPTION_STR);
    VALUE(FTB_ERR_FILTER_ATTR);
    VALUE(FTB_ERR_FILTER_VALUE);
    VALUE(FTB_GOT_NO_EVENT);
    VALUE(FTB_FAILURE);
    VALUE(FTB_ERR_INVALID_PARAMETER);
    VALUE(FTB_ERR_NETWORK_GENERAL);
    VALUE(FTB_ERR_NETWORK_NO_ROUTE);
    VALUE(FTB_SUBSCRIPTION_NONE);
    VALUE(FTB_SUBSCRIPTION_POLLING);
    VALUE(FTB_SUBSCRIPTION_NOTIFY);
    VALUE(FTB_ERR_HANDLE_NONE);
    VALUE(FTB_ERR_HANDLE_NOTIFICATION);
    VALUE(FTB_ERR_HANDLE_RECOVER);
    VALUE(FTB_DEFAULT_POLLING_Q_LEN);
    VALUE(FTB_MAX_CLIENTSCHEMA_VER);
    VALUE(FTB_MAX_EVENTSPACE);
    VALUE(FTB_MAX_CLIENT_NAME);
    VALUE(FTB_MAX_CLIENT_JOBID);
    VALUE(FTB_MAX_EVENT_NAME);
    VALUE(FTB_MAX_SEVERITY);
    VALUE(FTB_MAX_HOST_ADDR);
    VALUE(FTB_MAX_PID_TIME);
    VALUE(FTB_MAX_PAYLOAD_DATA);
    VALUE(FTB_MAX_SUBSCRIPTION_STYLE);
    VALUE(FTB_EVENT_SIZE);
    VALUE(FTB_NUMVERSION);
    printf("FTB_VERSION %s\n", FTB_VERSION);
}

static void given(void)
{
    SIZE(FTB_client_t);
    FIELD(FTB_client_t, client_schema_ver);
    FIELD(FTB_client_t, event_space);
    FIELD(FTB_client_t, client_name);
    FIELD(FTB_client_t, client_jobid);
    FIELD(FTB_client_t, client_subscription_style);
    FIELD(FTB_client_t, client_polling_queue_len);
    SIZE(FTB_event_info_t);
    FIELD(FTB_event_info_t, event_name);
    FIELD(FTB_event_info_t, severity);
    SIZE(FTB_event_properties_t);
    FIELD(FTB_event_properties_t, event_type);
    FIELD(FTB_event_properties_t, event_payload);
}

static void received(void)
{
    SIZE(FTB_location_id_t);
    FIELD(FTB_location_id_t, hostname);
    FIELD(FTB_location_id_t, pid_starttime);
    FIELD(FTB_location_id_t, pid);
    SIZE(FTB_receive_event_t);
    FIELD(FTB_receive_event_t, event_space);
    FIELD(FTB_receive_event_t, event_name);
    FIELD(FTB_receive_event_t, severity);
    FIELD(FTB_receive_event_t, client_jobid);
    FIELD(FTB_receive_event_t, client_name);
    FIELD(FTB_receive_event_t, client_extension);
    FIELD(FTB_receive_event_t, seqnum);
    FIELD(FTB_receive_event_t, incoming_src);
    FIELD(FTB_receive_event_t, event_type);
    FIELD(FTB_receive_event_t, event_payload);
}

static void handles(void)
{
    SIZE(FTB_client_id_t);
    FIELD(FTB_client_id_t, region);
    FIELD(FTB_client_id_t, comp_cat);
    FIELD(FTB_client_id_t, comp);
    FIELD(FTB_client_id_t, client_name);
    FIELD(FTB_client_id_t, ext);
    SIZE(FTB_client_handle_t);
    FIELD(FTB_client_handle_t, valid);
    FIELD(FTB_client_handle_t, client_id);
    SIZE(FTB_id_t);
    FIELD(FTB_id_t, location_id);
    FIELD(FTB_id_t, client_id);
    SIZE(FTB_event_t);
    FIELD(FTB_event_t, region);
    FIELD(FTB_event_t, comp_cat);
    FIELD(FTB_event_t, comp);
    FIELD(FTB_event_t, event_name);
    FIELD(FTB_event_t, severity);
    FIELD(FTB_event_t, client_jobid);
    FIELD(FTB_event_t, client_name);
    FIELD(FTB_event_t, hostname);
    FIELD(FTB_event_t, seqnum);
    FIELD(FTB_event_t, event_type);
    FIELD(FTB_event_t, event_payload);
    SIZE(FTB_subscribe_handle_t);
    FIELD(FTB_subscribe_handle_t, client_handle);
    FIELD(FTB_subscribe_handle_t, subscription_event);
    FIELD(FTB_subscribe_handle_t, subscription_type);
    FIELD(FTB_subscribe_handle_t, valid);
    SIZE(FTB_event_handle_t);
    FIELD(FTB_event_handle_t, event_name);
    FIELD(FTB_event_handle_t, severity);
    FIELD(FTB_event_handle_t, client_id);
    FIELD(FTB_event_handle_t, seqnum);
    FIELD(FTB_event_handle_t, location_id);
}

int main(void)
{
    constants();
    given();
    received();
    handles();
    return 0;
}
