// cc -I. examples/11_upload_files.c -o upload_files -lcurl -lcrypto -lpthread      ./upload_files s3://bucket      any file, behind
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <stdio.h>

static int failed(void) { return fprintf(stderr, "%s\n", ckpt_last_error()), 1; }

int main(int argc, char **argv) {
    ckpt_uploader *up;
    ckpt_uploader_desc desc = { .bucket_uri = argc > 1 ? argv[1] : "file:///tmp/ckpt-bucket",
                                .file_path_format_string = "logs/{remote_file_name}", .num_concurrent_uploads = 4,
                                .progress = { ckpt_progress_bar, NULL } };
    if (ckpt_uploader_open(&up, &desc) != CKPT_OK) return failed();
    for (int i = 0; i < 10; i++) {
        char path[64], name[64];
        snprintf(path, sizeof path, "upload-%d.log", i);
        snprintf(name, sizeof name, "day/%d.log", i);
        FILE *f = fopen(path, "w");
        if (f == NULL) return perror(path), 1;
        fprintf(f, "line %d\n", i);
        fclose(f);
        if (ckpt_upload_file(up, name, path, true) != CKPT_OK) return failed();     // staged: on its way even if we are killed now
        remove(path);
    }
    if (ckpt_uploader_wait(up, 0) != CKPT_OK) fprintf(stderr, "%s\n", ckpt_last_error());
    char uri[512];
    if (ckpt_get_uri_for_file(up, "day/7.log", uri, sizeof uri) != CKPT_OK) return failed();
    printf("the eighth is %s\n", uri);
    if (ckpt_download_file(up, "logs/day/7.log", "downloaded.log", true) != CKPT_OK) return failed();
    ckpt_transfer_stats s;
    ckpt_uploader_stats(up, &s);
    printf("%d files, %d bytes, %d tries that failed\n", (int)s.files, (int)s.bytes, (int)s.retries);
    remove("downloaded.log");
    return ckpt_uploader_close(up, 0) != CKPT_OK ? failed() : 0;
}
