/*
 * What the library says it is compatible with.
 *
 * There are no ports and no servers here: a client talks to the agent of its own node over a socket
 * (FTB_AGENT_SOCKET in the environment, else /run/ftb/agent.sock).
 */
#ifndef FTB_CONFIG_H
#define FTB_CONFIG_H

/* The release of CIFTS FTB whose client API 0.5 this is. */
#define FTB_VERSION "0.6.2"
#define FTB_NUMVERSION 602300

#endif
