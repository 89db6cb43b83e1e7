// Commands that run side by side, each with a pipe: the runtime waits for them by descriptors of processes (pidfd).
// Usage: commands ROUNDS
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

const beside = 3

func run(round, which int) (int, int) {
	command := exec.Command("sh", "-c", fmt.Sprintf("read word; echo $((word * %d)); exit %d", round, which))
	command.Stdin = strings.NewReader(strconv.Itoa(which+7) + "\n")
	out, err := command.Output()
	code := 0
	if err != nil {
		ended, is := err.(*exec.ExitError)
		if !is {
			panic(err)
		}
		code = ended.ExitCode()
	}
	product, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		panic(err)
	}
	return product, code
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	sum := 0
	for round := 0; round < rounds; round++ {
		var all sync.WaitGroup
		var products, codes [beside]int
		for which := 0; which < beside; which++ {
			all.Add(1)
			go func(which int) {
				defer all.Done()
				products[which], codes[which] = run(round, which)
			}(which)
		}
		all.Wait()
		for which := 0; which < beside; which++ {
			if products[which] != (which+7)*round || codes[which] != which {
				panic(fmt.Sprint(round, products, codes))
			}
			sum += products[which]
		}
		if round%8 == 0 {
			fmt.Println(round, sum)
		}
	}
	fmt.Println("end", sum)
}
