// What go-redis does that matters to who reads along: answers of a session, as JSON. usage: redis-client PORT PROTOCOL
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

var (
	ctx     = context.Background()
	answers []any
)

func say(value any, err error) {
	if err != nil {
		value = err.Error()
	}
	answers = append(answers, value)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	protocol, err := strconv.Atoi(os.Args[2])
	must(err)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol})
	must(client.FlushAll(ctx).Err())
	for n := range 50 {
		must(client.Set(ctx, fmt.Sprint("k", n), n, 0).Err())
		must(client.HSet(ctx, fmt.Sprint("h", n), "a", n, "b", "text").Err())
	}
	for range 3 {
		say(client.MGet(ctx, "k1", "k2", "gone").Result())
		say(client.Get(ctx, "gone").Result())
		say(client.HMGet(ctx, "h1", "a", "b", "gone").Result())
		say(client.HGetAll(ctx, "h1").Result())
		pipeline := client.Pipeline()
		for n := range 60 {
			pipeline.Get(ctx, fmt.Sprint("k", n%20))
			pipeline.HMGet(ctx, fmt.Sprint("h", n%20), "a", "b")
		}
		commands, err := pipeline.Exec(ctx)
		must(err)
		for _, command := range commands {
			answers = append(answers, command.String())
		}
	}
	say(client.Incr(ctx, "k1").Result())
	say(client.Get(ctx, "k1").Result())
	commands, err := client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Get(ctx, "k1")
		tx.Incr(ctx, "k1")
		tx.Get(ctx, "k1")
		return nil
	})
	must(err)
	for _, command := range commands {
		answers = append(answers, command.String())
	}
	say(client.Get(ctx, "k1").Result())
	err = client.Watch(ctx, func(tx *redis.Tx) error {
		say(tx.Get(ctx, "k1").Result())
		must(client.Set(ctx, "k1", "meanwhile", 0).Err())
		_, err := tx.TxPipelined(ctx, func(pipeline redis.Pipeliner) error { return pipeline.Set(ctx, "k1", "late", 0).Err() })
		return err
	}, "k1")
	say(nil, err)
	subscriber := client.Subscribe(ctx, "channel")
	_, err = subscriber.Receive(ctx)
	must(err)
	say(client.Publish(ctx, "channel", "hello").Result())
	message, err := subscriber.ReceiveMessage(ctx)
	must(err)
	answers = append(answers, message.Payload)
	must(subscriber.Close())
	// many at once on the connections of one pool: each sees what it wrote
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for n := range 200 {
				key := fmt.Sprint("own", worker)
				must(client.Set(ctx, key, n, 0).Err())
				for range 3 {
					if got, err := client.Get(ctx, key).Int(); err != nil || got != n {
						must(fmt.Errorf("%s is %d, not %d: %v", key, got, n, err))
					}
				}
			}
		})
	}
	all.Wait()
	must(json.NewEncoder(os.Stdout).Encode(answers))
}
