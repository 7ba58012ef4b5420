/*
 * FTB client API 0.5: codes, lengths and the structures that programs fill.
 *
 * Values and layouts are those of CIFTS FTB 0.6.2, so that programs compiled against it go on working.
 */
#ifndef FTB_DEF_H
#define FTB_DEF_H

#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What every function returns. */
#define FTB_SUCCESS 0
#define FTB_ERR_GENERAL (-1)             /* anything without a code of its own */
#define FTB_ERR_EVENTSPACE_FORMAT (-2)   /* not region.category.component */
#define FTB_ERR_SUBSCRIPTION_STYLE (-3)  /* no such client_subscription_style */
#define FTB_ERR_INVALID_VALUE (-4)       /* client_name or client_jobid too long */
#define FTB_ERR_DUP_CALL (-5)            /* that client is connected already */
#define FTB_ERR_NULL_POINTER (-6)
#define FTB_ERR_NOT_SUPPORTED (-7)       /* not with this client_subscription_style */
#define FTB_ERR_INVALID_FIELD (-8)       /* a declared event with a bad name or severity */
#define FTB_ERR_INVALID_HANDLE (-9)
#define FTB_ERR_DUP_EVENT (-10)          /* never returned */
#define FTB_ERR_INVALID_SCHEMA_FILE (-11)
#define FTB_ERR_INVALID_EVENT_NAME (-12) /* empty, too long, or not declared */
#define FTB_ERR_INVALID_EVENT_TYPE (-13) /* neither 1 nor 2 */
#define FTB_ERR_SUBSCRIPTION_STR (-14)   /* the string is no list of key=value */
#define FTB_ERR_FILTER_ATTR (-15)        /* an unknown key in it */
#define FTB_ERR_FILTER_VALUE (-16)       /* a bad value in it */
#define FTB_GOT_NO_EVENT (-17)           /* nothing to poll now */
#define FTB_FAILURE (-18)                /* the two handles differ */
#define FTB_ERR_INVALID_PARAMETER (-19)  /* never returned */
#define FTB_ERR_NETWORK_GENERAL (-20)    /* the agent did not take it in time */
#define FTB_ERR_NETWORK_NO_ROUTE (-21)   /* no agent, where FTB_CONNECT_WAIT demands one */

/* Kinds of subscriptions. Clients name theirs FTB_SUBSCRIPTION_POLLING, ..._NOTIFY, ..._BOTH, ..._NONE. */
#define FTB_SUBSCRIPTION_NONE 0x0
#define FTB_SUBSCRIPTION_POLLING 0x1
#define FTB_SUBSCRIPTION_NOTIFY 0x2

/* Events that a polling queue holds when the client does not say. */
#define FTB_DEFAULT_POLLING_Q_LEN 64

/* Lengths in bytes, the terminating NUL included. */
#define FTB_MAX_CLIENTSCHEMA_VER 8
#define FTB_MAX_EVENTSPACE 64
#define FTB_MAX_CLIENT_NAME 16
#define FTB_MAX_CLIENT_JOBID 16
#define FTB_MAX_EVENT_NAME 32
#define FTB_MAX_SEVERITY 16
#define FTB_MAX_HOST_ADDR 64
#define FTB_MAX_PID_TIME 32
#define FTB_MAX_PAYLOAD_DATA 368
#define FTB_MAX_SUBSCRIPTION_STYLE 32
#define FTB_EVENT_SIZE 720

typedef char FTB_client_schema_ver_t[FTB_MAX_CLIENTSCHEMA_VER];
typedef char FTB_eventspace_t[FTB_MAX_EVENTSPACE];
typedef char FTB_client_name_t[FTB_MAX_CLIENT_NAME];
typedef char FTB_client_jobid_t[FTB_MAX_CLIENT_JOBID];
typedef char FTB_event_name_t[FTB_MAX_EVENT_NAME];
typedef char FTB_severity_t[FTB_MAX_SEVERITY];
typedef char FTB_hostip_t[FTB_MAX_HOST_ADDR];
typedef char FTB_pid_starttime_t[FTB_MAX_PID_TIME];
typedef char FTB_subscription_style_t[FTB_MAX_SUBSCRIPTION_STYLE];

/* How a client introduces itself to FTB_Connect. */
typedef struct FTB_client {
    FTB_client_schema_ver_t client_schema_ver; /* not looked at */
    FTB_eventspace_t event_space;              /* region.category.component */
    FTB_client_name_t client_name;             /* may be empty */
    FTB_client_jobid_t client_jobid;           /* may be empty */
    FTB_subscription_style_t client_subscription_style;
    int client_polling_queue_len;              /* in events; 0: the default */
} FTB_client_t;

/* An event that a client declares: fatal, error, warning or info. */
typedef struct FTB_event_info {
    FTB_event_name_t event_name;
    FTB_severity_t severity;
} FTB_event_info_t;

/* What one publication adds. */
typedef struct FTB_event_properties {
    uint8_t event_type; /* 1: normal, 2: response */
    char event_payload[FTB_MAX_PAYLOAD_DATA];
} FTB_event_properties_t;

/* A publishing process. */
typedef struct FTB_location_id {
    char hostname[FTB_MAX_HOST_ADDR];
    FTB_pid_starttime_t pid_starttime;
    pid_t pid;
} FTB_location_id_t;

/* An event as a subscriber gets it. */
typedef struct FTB_receive_event_info {
    FTB_eventspace_t event_space;
    FTB_event_name_t event_name;
    FTB_severity_t severity;
    FTB_client_jobid_t client_jobid;
    FTB_client_name_t client_name;
    uint8_t client_extension; /* 0 */
    uint16_t seqnum;          /* counts the events of one client from 1, and wraps */
    FTB_location_id_t incoming_src;
    uint8_t event_type;
    char event_payload[FTB_MAX_PAYLOAD_DATA];
} FTB_receive_event_t;

#ifdef __cplusplus
}
#endif

#endif
