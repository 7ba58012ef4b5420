/*
 * Extensions of the FTB client API 0.5. CIFTS FTB has none of this: programs that include this
 * header need this library. libftb.h does not include it.
 */
#ifndef FTBX_H
#define FTBX_H

#include "libftb.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why events are missing. Later versions may add reasons. */
#define FTBX_GAP_OVERLOAD 1      /* a queue of an agent was full */
#define FTBX_GAP_RETENTION 2     /* this client fell behind, and the log no longer had the events */
#define FTBX_GAP_LOG_LOST 3      /* acting root and standby failed together */
#define FTBX_GAP_LATE 4          /* newer events of the same publisher had been delivered before */
#define FTBX_GAP_POLLING_QUEUE 5 /* the polling queue of this client was full */

/* Events that a subscription should have received and did not. */
typedef struct FTBX_gap {
    uint64_t count;          /* missing events, as far as their number is known; 0: unknown */
    uint64_t gaps;           /* gaps of this reason that are added up here */
    uint32_t reason;         /* FTBX_GAP_... */
    uint32_t at_least;       /* 1: more events, or events of a higher severity, may be missing */
    FTB_severity_t severity; /* the highest among them, "info" to "fatal"; empty: unknown */
} FTBX_gap_t;

/*
 * Takes the gaps of one reason that a subscription had since the last call, added up, or returns
 * FTB_GOT_NO_EVENT. Call it until it does. Works for subscriptions with and without a callback.
 * Never waits. Gaps are kept until they are taken or the subscription ends.
 *
 * FTBX_GAP_POLLING_QUEUE counts the events of this subscription. The other reasons count the events
 * of all subscriptions of the client, and appear at each subscription that may have wanted them.
 */
int FTBX_Poll_gap(FTB_subscribe_handle_t subscribe_handle, FTBX_gap_t *gap);

/*
 * This process has made progress: call it after each step of the work. Once it was called,
 * ftb-launch counts the rank as hung if no call follows within its --stall-after (10 minutes), or 4
 * times the longest time between two calls. Needs no client and no agent, and never waits.
 * FTB_ERR_GENERAL: the process was not started by ftb-launch, so nothing counts.
 */
int ftb_progress(void);

#ifdef __cplusplus
}
#endif

#endif
