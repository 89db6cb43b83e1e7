import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * Threads, collections and garbage in Java, each checked against a second account of itself.
 *
 * <p>A ring of blocking queues with timed waits, a bank under a read-write lock, a hash map beside a tree
 * map, string builders beside running sums, monitors with wait and notify. The output does not depend on
 * scheduling. Usage: java Collections [ROUNDS]
 */
public final class Collections {
    static final int THREADS = 6;
    static final int ACCOUNTS = 128;
    static final long TOTAL = 1 << 20;

    static void check(boolean holds, String what) {
        if (holds) return;
        System.err.println("Collections.java: does not hold: " + what);
        System.err.flush();
        Runtime.getRuntime().halt(99);
    }

    /** splitmix64, so that the numbers are the same in every version of Java. */
    static final class Random {
        long state;

        Random(long seed) {
            state = seed;
        }

        long next() {
            state += 0x9e3779b97f4a7c15L;
            long z = state;
            z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
            z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
            return z ^ (z >>> 31);
        }

        int below(int n) {
            return (int) ((next() >>> 1) % n);
        }
    }

    static final ReentrantReadWriteLock bankLock = new ReentrantReadWriteLock();
    static final long[] accounts = new long[ACCOUNTS];

    static void move(Random random) {
        int from = random.below(ACCOUNTS), to = random.below(ACCOUNTS), amount = random.below(1000);
        bankLock.writeLock().lock();
        accounts[from] -= amount;
        accounts[to] += amount;
        bankLock.writeLock().unlock();
        bankLock.readLock().lock();
        long sum = 0;
        for (long account : accounts) sum += account;
        bankLock.readLock().unlock();
        check(sum == TOTAL, "the bank holds " + sum);
    }

    static final ConcurrentHashMap<Integer, AtomicLong> shared = new ConcurrentHashMap<>();

    /** One thread with its own collections and its place in the ring. */
    static final class Worker extends Thread {
        final int number;
        final int rounds;
        final Random random;
        final BlockingQueue<long[]> inbox = new ArrayBlockingQueue<>(3);
        final Map<String, String> hash = new HashMap<>();
        final TreeMap<String, String> tree = new TreeMap<>();
        final ArrayDeque<byte[]> garbage = new ArrayDeque<>();
        final ThreadLocal<Integer> seen = ThreadLocal.withInitial(() -> 0);
        Worker next;
        CyclicBarrier barrier;
        long digest;

        Worker(int number, int rounds) {
            super("worker-" + number);
            this.number = number;
            this.rounds = rounds;
            this.random = new Random(number + 1);
            setDaemon(true);
        }

        void mapStep() {
            String key = "key-" + random.below(3000);
            String value = hash.get(key);
            check(value == null ? !tree.containsKey(key) : value.equals(tree.get(key)), "two maps agree on " + key);
            if (value != null) {
                check(value.startsWith(key) && value.length() % key.length() == 0, "the value of " + key);
                hash.remove(key);
                tree.remove(key);
            } else {
                String fresh = key.repeat(1 + random.below(20));
                hash.put(key, fresh);
                tree.put(key, new String(fresh.toCharArray()));
            }
        }

        void textStep() {
            StringBuilder text = new StringBuilder();
            long sum = 0;
            for (int i = 0; i < 400; i++) {
                int n = random.below(100000);
                sum += n;
                text.append(n).append(i % 2 == 0 ? ' ' : ',');
            }
            long again = 0;
            for (String part : text.toString().split("[ ,]")) again += Long.parseLong(part);
            check(sum == again, "numbers changed in a text");
            digest = digest * 31 + sum;
        }

        void garbageStep() {
            byte[] block = new byte[random.below(20) == 0 ? 200_000 : 2_000];
            for (int i = 0; i < block.length; i += 64) block[i] = (byte) (block.length + i);
            garbage.add(block);
            if (garbage.size() < 60) return;
            byte[] old = garbage.poll();
            for (int i = 0; i < old.length; i += 64) check(old[i] == (byte) (old.length + i), "a block changed");
        }

        void ringStep(int round, int step) throws InterruptedException {
            next.inbox.put(new long[] {number, round, step});
            long[] item;
            do item = inbox.poll(5, TimeUnit.MILLISECONDS);
            while (item == null);
            boolean right = item[0] == (number + THREADS - 1) % THREADS && item[1] == round && item[2] == step;
            check(right, "an item came out of turn");
            shared.computeIfAbsent(step, s -> new AtomicLong()).addAndGet(round);
        }

        void waitStep() throws InterruptedException {
            long from = System.nanoTime();
            synchronized (this) {
                wait(1);
            }
            Thread.sleep(1);
            check(System.nanoTime() - from >= 1_000_000, "a sleep ended early");
        }

        @Override
        public void run() {
            try {
                for (int round = 0; round < rounds; round++) {
                    check(seen.get() == round, "a thread-local value");
                    for (int step = 0; step < 10; step++) {
                        for (int i = 0; i < 120; i++) mapStep();
                        for (int i = 0; i < 12; i++) move(random);
                        for (int i = 0; i < 10; i++) garbageStep();
                        textStep();
                        ringStep(round, step);
                    }
                    waitStep();
                    check(new ArrayList<>(tree.keySet()).equals(hash.keySet().stream().sorted().toList()), "keys");
                    digest = digest * 31 + hash.size();
                    seen.set(round + 1);
                    barrier.await();
                    barrier.await();
                }
            } catch (Throwable e) {
                e.printStackTrace();
                check(false, "a thread ended: " + e);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        int rounds = args.length > 0 ? Integer.parseInt(args[0]) : 150;
        accounts[0] = TOTAL;
        List<Worker> workers = new ArrayList<>();
        CyclicBarrier barrier = new CyclicBarrier(THREADS + 1);
        for (int i = 0; i < THREADS; i++) workers.add(new Worker(i, rounds));
        for (Worker worker : workers) {
            worker.next = workers.get((worker.number + 1) % THREADS);
            worker.barrier = barrier;
            worker.start();
        }
        long digest = 0;
        long last = System.nanoTime();
        for (int round = 1; round <= rounds; round++) {
            barrier.await();
            long now = System.nanoTime();
            check(now - last >= 0, "the clock went back");
            last = now;
            for (Worker worker : workers) digest = digest * 31 + worker.digest;
            for (long account : accounts) digest = digest * 31 + account;
            long want = (long) THREADS * round * (round - 1) / 2;
            for (AtomicLong sum : shared.values()) check(sum.get() == want, "a shared sum is " + sum);
            System.out.printf("round %d of %d: %016x%n", round, rounds, digest);
            System.out.flush();
            barrier.await();
        }
        for (Worker worker : workers) worker.join();
        System.out.printf("digest %016x%n", digest);
    }
}
