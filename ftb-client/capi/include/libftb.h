/*
 * The Fault Tolerance Backplane for C programs: client API 0.5.
 *
 * All functions can be called from any thread at any time, also from callbacks. None of them waits
 * without a bound, and none ends the program. The longest waits, for an agent in trouble, are said
 * below; with a healthy agent, and with none, they return within milliseconds. FTB_CONNECT_WAIT=TIME in
 * the environment (at most 10m) makes those that are shorter that long: who demands an agent waits for
 * its answers as patiently. A process that forks: the handles of the parent are FTB_ERR_INVALID_HANDLE
 * in the child, which can connect anew.
 */
#ifndef LIBFTB_H
#define LIBFTB_H

#include "ftb_client_lib_defs.h"
#include "ftb_config.h"
#include "ftb_def.h"
#include "ftb_manager_lib.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Connects a client. Succeeds without an agent too: the client attaches when one comes, and again
 * whenever it was lost. At most 2 s, and only while a process has the agent's socket; with
 * FTB_CONNECT_WAIT at most that, and FTB_ERR_NETWORK_NO_ROUTE if no agent came. FTB_ERR_GENERAL when the
 * agent turns the client away, because it is full or of another release.
 */
int FTB_Connect(const FTB_client_t *client_info, FTB_client_handle_t *client_handle);

/*
 * Declares events that the client may publish: those of a schema file, or, where that is NULL, of an
 * array. At most 100 for one client.
 */
int FTB_Declare_publishable_events(FTB_client_handle_t client_handle, const char *schema_file,
                                   const FTB_event_info_t *event_info, int num_events);

/*
 * Publishes a declared event. event_properties may be NULL: a normal event without payload. Waits
 * only when thousands of events are unconfirmed (at most 5 s, then FTB_ERR_NETWORK_GENERAL), and for
 * the confirmation of a fatal event (at most 1 s).
 */
int FTB_Publish(FTB_client_handle_t client_handle, const char *event_name,
                const FTB_event_properties_t *event_properties, FTB_event_handle_t *event_handle);

/*
 * Subscribes: with a callback, or to be polled where that is NULL. When it returns, everything that
 * matches and is published anywhere from then on is delivered (without an agent: from when one is
 * there). At most 5 s, then FTB_ERR_NETWORK_GENERAL.
 */
int FTB_Subscribe(FTB_subscribe_handle_t *subscribe_handle, FTB_client_handle_t client_handle,
                  const char *subscription_str, int (*callback)(FTB_receive_event_t *, void *),
                  void *arg);

/*
 * Ends a subscription. Its callback does not run afterwards; waits for one that runs, at most 1 s.
 */
int FTB_Unsubscribe(FTB_subscribe_handle_t *subscribe_handle);

/* Takes the next event of a polling subscription, or returns FTB_GOT_NO_EVENT. Never waits. */
int FTB_Poll_event(FTB_subscribe_handle_t subscribe_handle, FTB_receive_event_t *receive_event);

/*
 * Disconnects a client. FTB_ERR_NETWORK_GENERAL when not all that it published could be handed over;
 * it is disconnected all the same. At most 7 s.
 */
int FTB_Disconnect(FTB_client_handle_t client_handle);

/* Makes the event handle that the publisher of a received event was given. */
int FTB_Get_event_handle(FTB_receive_event_t receive_event, FTB_event_handle_t *event_handle);

/* FTB_SUCCESS if both handles name the same publication, else FTB_FAILURE. */
int FTB_Compare_event_handles(FTB_event_handle_t event_handle1, FTB_event_handle_t event_handle2);

#ifdef __cplusplus
}
#endif

#endif
