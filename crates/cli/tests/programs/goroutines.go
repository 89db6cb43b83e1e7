// Goroutines, channels, maps, timers and garbage, each checked against a second account of itself.
//
//   - a pipeline of goroutines and channels: every number goes in and comes out once;
//   - maps beside sorted slices; a tree of pointers rebuilt again and again, so that the collector works;
//   - a bank under a mutex whose sum never changes; a counter that only atomics touch;
//   - tickers, contexts with deadlines, and a clock that must not go back.
//
// The output does not depend on scheduling. Usage: goroutines [ROUNDS]
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	stages   = 5
	items    = 4000
	accounts = 64
	total    = 1 << 20
)

func check(holds bool, format string, values ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, "goroutines.go: does not hold: "+format+"\n", values...)
		debug.PrintStack()
		os.Exit(99)
	}
}

// random is splitmix64, so that the numbers are the same in every version of Go.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// pipeline sends numbers through stages that each add one, and sums what comes out.
func pipeline(seed uint64) uint64 {
	source := make(chan uint64, 8)
	out := source
	for stage := 0; stage < stages; stage++ {
		in := out
		next := make(chan uint64, 3)
		var workers sync.WaitGroup
		for worker := 0; worker < 3; worker++ {
			workers.Add(1)
			go func() {
				defer workers.Done()
				for n := range in {
					next <- n + 1
				}
			}()
		}
		go func() {
			workers.Wait()
			close(next)
		}()
		out = next
	}
	var sent, came uint64
	go func() {
		r := random(seed)
		for i := 0; i < items; i++ {
			n := r.next() >> 20
			atomic.AddUint64(&sent, n)
			source <- n
		}
		close(source)
	}()
	count := 0
	for n := range out {
		came += n
		count++
	}
	check(count == items, "%d of %d items came through", count, items)
	check(came == atomic.LoadUint64(&sent)+items*stages, "items changed on the way")
	return came
}

// shelf keeps the same content as a map and as a sorted slice of keys.
type shelf struct {
	values map[string][]byte
	keys   []string
	random random
}

func (s *shelf) step() {
	key := "key-" + strconv.Itoa(s.random.below(5000))
	at := sort.SearchStrings(s.keys, key)
	value, there := s.values[key]
	check(there == (at < len(s.keys) && s.keys[at] == key), "the map and the list disagree about %s", key)
	if there {
		for i, b := range value {
			check(b == key[i%len(key)], "byte %d of the value of %s", i, key)
		}
		delete(s.values, key)
		s.keys = append(s.keys[:at], s.keys[at+1:]...)
		return
	}
	value = make([]byte, 1+s.random.below(900))
	for i := range value {
		value[i] = key[i%len(key)]
	}
	s.values[key] = value
	s.keys = append(s.keys, "")
	copy(s.keys[at+1:], s.keys[at:])
	s.keys[at] = key
}

// node is a binary tree that knows its own size.
type node struct {
	left, right *node
	size        int
	ballast     [5]uint64
}

func grow(depth int, r *random) *node {
	if depth == 0 || r.below(12) == 0 {
		return nil
	}
	n := &node{left: grow(depth-1, r), right: grow(depth-1, r), size: 1}
	for _, child := range []*node{n.left, n.right} {
		if child != nil {
			n.size += child.size
		}
	}
	n.ballast[0], n.ballast[4] = uint64(n.size)*3, uint64(n.size)*7
	return n
}

func (n *node) walk() int {
	if n == nil {
		return 0
	}
	size := 1 + n.left.walk() + n.right.walk()
	check(size == n.size && n.ballast[0] == uint64(size)*3 && n.ballast[4] == uint64(size)*7, "a tree changed")
	return size
}

// bank moves money between accounts from many goroutines.
type bank struct {
	sync.Mutex
	accounts [accounts]int
}

func (b *bank) run(r random, moves int) {
	for move := 0; move < moves; move++ {
		from, to, amount := r.below(accounts), r.below(accounts), r.below(100)
		b.Lock()
		b.accounts[from] -= amount
		b.accounts[to] += amount
		sum := 0
		for _, a := range b.accounts {
			sum += a
		}
		b.Unlock()
		check(sum == total, "the bank holds %d", sum)
	}
}

// waits sees that no wait ends early and that the clock goes on.
func waits(ticker *time.Ticker, last time.Time) time.Time {
	now := time.Now()
	check(now.Sub(last) >= 0, "the clock went back by %v", last.Sub(now))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	check(time.Since(now) >= 2*time.Millisecond, "a deadline came early")
	<-ticker.C
	return now
}

func main() {
	rounds := 30
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	check(rounds > 0, "the scale must be a positive number")
	b := &bank{}
	b.accounts[0] = total
	shelves := make([]*shelf, 4)
	for i := range shelves {
		shelves[i] = &shelf{values: map[string][]byte{}, random: random(i + 1)}
	}
	ticker := time.NewTicker(3 * time.Millisecond)
	last := time.Now()
	kept := []*node{}
	digest := sha256.New()
	var steps atomic.Int64
	for round := 1; round <= rounds; round++ {
		var all sync.WaitGroup
		for i, s := range shelves {
			all.Add(2)
			go func(s *shelf) {
				defer all.Done()
				for step := 0; step < 3000; step++ {
					s.step()
					steps.Add(1)
				}
				check(sort.StringsAreSorted(s.keys) && len(s.keys) == len(s.values), "a shelf is out of order")
			}(s)
			go func(seed random) {
				defer all.Done()
				b.run(seed, 2000)
			}(random(round*100 + i))
		}
		came := pipeline(uint64(round))
		r := random(round)
		kept = append(kept, grow(13, &r))
		if len(kept) > 6 {
			kept = kept[1:]
		}
		size := 0
		for _, tree := range kept {
			size += tree.walk()
		}
		last = waits(ticker, last)
		all.Wait()
		check(steps.Load() == int64(round*len(shelves)*3000), "steps were lost")
		if round%10 == 0 {
			runtime.GC()
		}
		fmt.Fprintln(digest, came, size, b.accounts, len(shelves[0].keys))
		fmt.Printf("round %d of %d: %x\n", round, rounds, digest.Sum(nil)[:8])
	}
	fmt.Printf("digest %x\n", digest.Sum(nil))
}
