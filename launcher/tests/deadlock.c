/* deadlock: each rank counts its steps. After some, rank 1 waits for a lock that it holds itself. */
#include "ftbx.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int main(void)
{
    int hangs = atoi(getenv("FTB_RANK")) == 1;

    for (int step = 0;; step++) {
        pthread_mutex_lock(&lock);
        if (ftb_progress() != FTB_SUCCESS)
            return 1;
        if (!hangs || step < 50)
            pthread_mutex_unlock(&lock);
        usleep(20000);
    }
}
