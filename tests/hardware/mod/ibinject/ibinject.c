// SPDX-License-Identifier: GPL-2.0-only
/*
 * ibinject: makes an RDMA device report an asynchronous event, for tests.
 *
 *   echo "DEVICE PORT EVENT" > /sys/module/ibinject/parameters/event
 *
 * EVENT is a number of enum ib_event_type. The event takes the way that a driver's own takes,
 * through ib_core to whoever reads the device's asynchronous events. Only events of a device or
 * a port can be injected: those of a queue pair, completion queue or receive queue need one.
 */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <rdma/ib_verbs.h>

static bool is_of_device_or_port(unsigned int number)
{
	switch (number) {
	case IB_EVENT_DEVICE_FATAL:
	case IB_EVENT_PORT_ACTIVE:
	case IB_EVENT_PORT_ERR:
	case IB_EVENT_LID_CHANGE:
	case IB_EVENT_PKEY_CHANGE:
	case IB_EVENT_SM_CHANGE:
	case IB_EVENT_CLIENT_REREGISTER:
		return true;
	default:
		return false;
	}
}

static int inject(const char *text, const struct kernel_param *param)
{
	char name[IB_DEVICE_NAME_MAX + 1];
	unsigned int port, number;
	struct ib_event event = {};

	BUILD_BUG_ON(IB_DEVICE_NAME_MAX < 63);
	if (sscanf(text, "%63s %u %u", name, &port, &number) != 3)
		return -EINVAL;
	if (!is_of_device_or_port(number))
		return -EOPNOTSUPP;
	event.device = ib_device_get_by_name(name, RDMA_DRIVER_UNKNOWN);
	if (!event.device)
		return -ENODEV;
	event.event = number;
	event.element.port_num = port;
	ib_dispatch_event(&event);
	ib_device_put(event.device);
	return 0;
}

static const struct kernel_param_ops event_ops = { .set = inject };

module_param_cb(event, &event_ops, NULL, 0200);
MODULE_PARM_DESC(event, "\"DEVICE PORT EVENT\": report this asynchronous event");
MODULE_DESCRIPTION("report asynchronous events of RDMA devices (for tests)");
MODULE_LICENSE("GPL");
