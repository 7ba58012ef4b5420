/* Linked against another library of the same name, and run with this one. */
#include <stdio.h>
#include <string.h>
#include <libftb.h>

int main(void)
{
    FTB_client_t info;
    FTB_client_handle_t handle;
    memset(&info, 0, sizeof(info));
    printf("style %d, ", FTB_Connect(&info, &handle));
    strcpy(info.client_subscription_style, "FTB_SUBSCRIPTION_NONE");
    printf("space %d, ", FTB_Connect(&info, &handle));
    strcpy(info.event_space, "a.b.c");
    printf("connected %d, ", FTB_Connect(&info, &handle));
    printf("again %d, ", FTB_Connect(&info, &handle));
    printf("disconnected %d\n", FTB_Disconnect(handle));
    return 0;
}
