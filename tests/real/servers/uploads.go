// Uploads over HTTP/2 without TLS: `uploads URL BYTES N`, N uploads, each over a connection of its own, two at once. Writes how many had no
// right answer in 20 s.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

func upload(url string, body []byte) bool {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	response, err := client.Post(url, "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return false
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return err == nil && response.StatusCode == 200 && string(answer) == fmt.Sprintf("%d\n", len(body))
}

func main() {
	size, _ := strconv.Atoi(os.Args[2])
	count, _ := strconv.Atoi(os.Args[3])
	body := make([]byte, size)
	var group sync.WaitGroup
	var lock sync.Mutex
	failed := 0
	for range 2 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range count / 2 {
				if !upload(os.Args[1], body) {
					lock.Lock()
					failed++
					lock.Unlock()
				}
			}
		}()
	}
	group.Wait()
	fmt.Println(failed)
}
