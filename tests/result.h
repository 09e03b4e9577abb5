/* result.h: what the programs of scripts print: a line "PASS: ..." or "FAIL: ..." for each thing that was tried, from any thread. */
#ifndef RESULT_H
#define RESULT_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int failures;
static pthread_mutex_t result_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 2, 3)))
static void result(bool good, const char *fmt, ...) {
    va_list args;
    pthread_mutex_lock(&result_lock);
    printf(good ? "PASS: " : "FAIL: ");
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
    failures += !good;
    pthread_mutex_unlock(&result_lock);
}

#endif // RESULT_H
