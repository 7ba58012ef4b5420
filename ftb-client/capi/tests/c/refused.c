/* An agent that serves a few clients only. */
#include "check.h"

int main(void)
{
    /* More than the agent serves, with the places that it keeps for publishers such as root. */
    FTB_client_handle_t handles[100];
    int count = 0, code = FTB_SUCCESS;
    while (count < COUNT(handles) && code == FTB_SUCCESS) {
        char name[16];
        sprintf(name, "c%d", count);
        FTB_client_t info = client("ftb.refused.test", name, "FTB_SUBSCRIPTION_NONE");
        code = FTB_Connect(&info, &handles[count]);
        count += code == FTB_SUCCESS;
    }
    MUST(count > 0 && count < COUNT(handles));
    say("connect one more than are served", code);
    say("disconnect it, which never was", FTB_Disconnect(handles[count]));
    for (int i = 0; i < count; i++)
        MUST(FTB_Disconnect(handles[i]) == FTB_SUCCESS);
    return 0;
}
