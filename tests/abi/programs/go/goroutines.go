// Go's runtime under load: goroutines, channels, select, timers, garbage collection, context, processes, signals.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		child()
		return
	}
	unbuffered()
	fanIn()
	sieve()
	selects()
	timers()
	contexts()
	collector()
	locks()
	processes()
	signals()
	files()
	panics()
}

func child() {
	switch os.Args[1] {
	case "echo":
		text, _ := io.ReadAll(os.Stdin)
		fmt.Print(strings.ToUpper(string(text)))
		fmt.Fprintln(os.Stderr, "child has read", len(text))
		os.Exit(len(os.Args))
	case "sleep":
		time.Sleep(100 * time.Second)
	}
}

func unbuffered() {
	values, done := make(chan int), make(chan int)
	go func() {
		sum := 0
		for value := range values {
			sum += value
		}
		done <- sum
	}()
	for i := 0; i < 5000; i++ {
		values <- i
	}
	close(values)
	fmt.Println("unbuffered", <-done)
}

func fanIn() {
	results := make(chan [2]int, 16)
	var group sync.WaitGroup
	for me := 0; me < 200; me++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 20; i++ {
				runtime.Gosched()
				results <- [2]int{me, i}
			}
		}()
	}
	go func() { group.Wait(); close(results) }()
	next, ordered, count := make(map[int]int), true, 0
	for result := range results {
		ordered = ordered && next[result[0]] == result[1]
		next[result[0]]++
		count++
	}
	fmt.Println("fan in", count, len(next), ordered)
}

func sieve() {
	numbers := make(chan int)
	stop := make(chan struct{})
	go func(out chan int) {
		for i := 2; ; i++ {
			select {
			case out <- i:
			case <-stop:
				return
			}
		}
	}(numbers)
	primes := []int{}
	for len(primes) < 60 {
		prime := <-numbers
		primes = append(primes, prime)
		filtered := make(chan int)
		go func(in, out chan int) {
			for {
				select {
				case value := <-in:
					if value%prime != 0 {
						select {
						case out <- value:
						case <-stop:
							return
						}
					}
				case <-stop:
					return
				}
			}
		}(numbers, filtered)
		numbers = filtered
	}
	close(stop)
	fmt.Println("sieve", primes[59])
}

func selects() {
	one, other, quit := make(chan int), make(chan int), make(chan bool)
	go func() {
		for i := 0; i < 1000; i++ {
			if i%2 == 0 {
				one <- i
			} else {
				other <- i
			}
		}
		quit <- true
	}()
	evens, odds := 0, 0
	for {
		select {
		case value := <-one:
			evens += value
			continue
		case value := <-other:
			odds += value
			continue
		case <-quit:
		}
		break
	}
	select {
	case <-one:
		fmt.Println("impossible")
	default:
	}
	fmt.Println("selects", evens, odds)
}

func timers() {
	// Of timers that have expired by the time the runtime looks, the last may well be served first: only being early is wrong.
	fired, early := make(chan int, 5), atomic.Int32{}
	for i := 5; i > 0; i-- {
		begin, delay := time.Now(), time.Duration(i)*10*time.Millisecond
		time.AfterFunc(delay, func() {
			if time.Since(begin) < delay {
				early.Add(1)
			}
			fired <- i
		})
	}
	sum := 0
	for range 5 {
		sum += <-fired
	}
	ticker, ticks := time.NewTicker(2*time.Millisecond), 0
	for range ticker.C {
		if ticks++; ticks == 10 {
			break
		}
	}
	ticker.Stop()
	timer := time.NewTimer(time.Hour)
	start := time.Now()
	time.Sleep(5 * time.Millisecond)
	fmt.Println("timers", sum, early.Load(), ticks, timer.Stop(), time.Since(start) >= 5*time.Millisecond)
}

func contexts() {
	parent, cancel := context.WithCancel(context.Background())
	var stopped atomic.Int32
	var group sync.WaitGroup
	for i := 0; i < 50; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			child, done := context.WithTimeout(parent, time.Hour)
			defer done()
			<-child.Done()
			if errors.Is(child.Err(), context.Canceled) {
				stopped.Add(1)
			}
		}()
	}
	cancel()
	group.Wait()
	short, done := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer done()
	<-short.Done()
	fmt.Println("contexts", stopped.Load(), short.Err())
}

type node struct {
	left, right *node
	value       [4]int
}

func build(depth int) *node {
	if depth == 0 {
		return nil
	}
	return &node{build(depth - 1), build(depth - 1), [4]int{depth}}
}

func (n *node) sum() int {
	if n == nil {
		return 0
	}
	return n.value[0] + n.left.sum() + n.right.sum()
}

func collector() {
	debug.SetGCPercent(20)
	kept := build(14)
	var total atomic.Int64
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for j := 0; j < 20; j++ {
				total.Add(int64(build(11).sum()))
				_ = make([]byte, 200<<10)
			}
		}()
	}
	group.Wait()
	runtime.GC()
	debug.FreeOSMemory()
	var statistics runtime.MemStats
	runtime.ReadMemStats(&statistics)
	fmt.Println("collector", total.Load(), kept.sum(), statistics.NumGC > 2)
	debug.SetGCPercent(100)
}

func locks() {
	var mutex sync.RWMutex
	var once sync.Once
	condition := sync.NewCond(&sync.Mutex{})
	table, calls, turn := map[int]int{}, 0, 0
	var group sync.WaitGroup
	for me := 0; me < 16; me++ {
		group.Add(1)
		go func() {
			defer group.Done()
			once.Do(func() { calls++ })
			for i := 0; i < 200; i++ {
				mutex.Lock()
				table[i] += me
				mutex.Unlock()
				mutex.RLock()
				_ = table[i]
				mutex.RUnlock()
			}
			condition.L.Lock()
			for turn != me {
				condition.Wait()
			}
			turn++
			condition.Broadcast()
			condition.L.Unlock()
		}()
	}
	group.Wait()
	sum := 0
	for _, value := range table {
		sum += value
	}
	/* Threads of the operating system that are locked to their goroutines. */
	tids := make(chan int, 8)
	release := make(chan struct{})
	for i := 0; i < 8; i++ {
		go func() {
			runtime.LockOSThread()
			tids <- syscall.Gettid()
			<-release
		}()
	}
	different := map[int]bool{}
	for i := 0; i < 8; i++ {
		different[<-tids] = true
	}
	close(release)
	fmt.Println("locks", sum, calls, turn, len(different))
}

func processes() {
	self, err := os.Executable()
	if err != nil {
		fmt.Println("no executable:", err)
		return
	}
	lines := make([]string, 6)
	var group sync.WaitGroup
	for me := range lines {
		group.Add(1)
		go func() {
			defer group.Done()
			arguments := append([]string{"echo"}, strings.Fields(strings.Repeat("x ", me))...)
			command := exec.Command(self, arguments...)
			command.Stdin = strings.NewReader(strings.Repeat(fmt.Sprintf("text of %d\n", me), 400))
			var out, errors bytes.Buffer
			command.Stdout, command.Stderr = &out, &errors
			err := command.Run()
			lines[me] = fmt.Sprintf("%v %d %q", err, out.Len(), errors.String())
		}()
	}
	group.Wait()
	for _, line := range lines {
		fmt.Println("process", line)
	}
	limited, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	fmt.Println("killed:", exec.CommandContext(limited, self, "sleep").Run())
	fmt.Println("missing:", exec.Command("/does/not/exist").Run())
	out, err := exec.Command("/bin/busybox", "echo", "from busybox").Output()
	fmt.Printf("%q %v\n", out, err)
}

func signals() {
	received := make(chan os.Signal, 4)
	signal.Notify(received, syscall.SIGUSR1, syscall.SIGTERM)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	first := <-received
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	fmt.Println("signals", first, <-received)
	signal.Stop(received)
}

func files() {
	os.MkdirAll("go/a/b", 0o755)
	var group sync.WaitGroup
	for i := 0; i < 20; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			os.WriteFile(fmt.Sprintf("go/a/b/%02d", i), bytes.Repeat([]byte{byte(i)}, 1000*i), 0o644)
		}()
	}
	group.Wait()
	total, names := int64(0), []string{}
	filepath.Walk("go", func(path string, info os.FileInfo, err error) error {
		if !info.IsDir() {
			total += info.Size()
		}
		names = append(names, path)
		return err
	})
	sort.Strings(names)
	_, err := os.Open("go/none")
	fmt.Println("files", len(names), names[len(names)-1], total, err, os.RemoveAll("go"))
	reader, writer, _ := os.Pipe()
	go func() { fmt.Fprint(writer, "through a pipe"); writer.Close() }()
	text, _ := io.ReadAll(reader)
	fmt.Println(string(text))
}

func panics() {
	defer func() { fmt.Println("recovered:", recover()) }()
	var nothing *node
	fmt.Println(nothing.value[1])
}
