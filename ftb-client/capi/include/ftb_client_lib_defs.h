/*
 * FTB client API 0.5: handles. Programs copy, keep and pass them by value; FTB_Connect,
 * FTB_Subscribe and FTB_Publish fill them.
 */
#ifndef FTB_CLIENT_LIB_DEFS_H
#define FTB_CLIENT_LIB_DEFS_H

#include "ftb_def.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by the API, used by no function of it. */
#define FTB_ERR_HANDLE_NONE 0x0
#define FTB_ERR_HANDLE_NOTIFICATION 0x1
#define FTB_ERR_HANDLE_RECOVER 0x2

/* A client within its process. */
typedef struct FTB_client_id {
    FTB_eventspace_t region;
    FTB_eventspace_t comp_cat;
    FTB_eventspace_t comp;
    FTB_client_name_t client_name;
    uint8_t ext; /* 0 */
} FTB_client_id_t;

typedef struct FTB_client_handle {
    uint8_t valid;
    FTB_client_id_t client_id;
} FTB_client_handle_t;

/* A client anywhere. */
typedef struct FTB_id {
    FTB_location_id_t location_id;
    FTB_client_id_t client_id;
} FTB_id_t;

/* What a subscription wants; "all" wherever it does not care. */
typedef struct FTB_event {
    FTB_eventspace_t region;
    FTB_eventspace_t comp_cat;
    FTB_eventspace_t comp;
    FTB_event_name_t event_name;
    FTB_severity_t severity;
    FTB_client_jobid_t client_jobid;
    FTB_client_name_t client_name;
    FTB_hostip_t hostname;
    uint16_t seqnum; /* the library's own: leave it */
    uint8_t event_type;
    char event_payload[FTB_MAX_PAYLOAD_DATA];
} FTB_event_t;

typedef struct FTB_subscribe_handle {
    FTB_client_handle_t client_handle;
    FTB_event_t subscription_event;
    uint8_t subscription_type;
    uint8_t valid;
} FTB_subscribe_handle_t;

/* Names one publication. Fits into a payload, for responses. */
typedef struct FTB_event_handle {
    FTB_event_name_t event_name;
    FTB_severity_t severity;
    FTB_client_id_t client_id;
    uint16_t seqnum;
    FTB_location_id_t location_id;
} FTB_event_handle_t;

#ifdef __cplusplus
}
#endif

#endif
