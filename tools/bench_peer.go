// bench_peer.go: minio-go as a peer of bench.c: main http|https HOST:PORT FILE uploads FILE in parts of 64 MiB by 4 threads, unsigned.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

func main() {
	c, err := minio.New(os.Args[2], &minio.Options{
		Creds:  credentials.NewStaticV4("A", "B", ""),
		Secure: os.Args[1] == "https",
		Region: "us-east-1",
	})
	if err == nil {
		_, err = c.FPutObject(context.Background(), "bench", "minio", os.Args[3], minio.PutObjectOptions{
			PartSize:             64 << 20,
			NumThreads:           4,
			DisableContentSha256: true,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
