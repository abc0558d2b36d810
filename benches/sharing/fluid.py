"""Fair sharing of limited storages as a fluid: every job in a phase has the same part of the storage's rate."""

from dataclasses import dataclass, field


@dataclass
class Phases:
    """A job: `count` phases of so many bytes, each on the next of its storages, with `pause_s` of computing between them."""

    delay_s: float
    count: int
    bytes: float
    pause_s: float
    late_s: float  # from the beginning of a phase until its bytes come
    on: tuple
    computes_beside: bool = False  # computes while its bytes move

    done: int = field(default=0, init=False)
    left_bytes: float = field(default=0.0, init=False)
    began_s: float = field(default=0.0, init=False)
    moves_from_s: float = field(default=0.0, init=False)
    longest_s: float = field(default=0.0, init=False)
    end_s: float = field(default=0.0, init=False)

    def begin(self, now_s):
        self.began_s, self.moves_from_s, self.left_bytes = now_s, now_s + self.late_s, float(self.bytes)

    def end(self, now_s):
        self.longest_s = max(self.longest_s, now_s - self.began_s)
        self.end_s = max(now_s, self.began_s + self.pause_s) if self.computes_beside else now_s
        self.done += 1
        if self.done < self.count:
            self.begin(self.end_s + (0.0 if self.computes_beside else self.pause_s))

    def is_over(self):
        return self.done == self.count

    def storage(self):
        return self.on[self.done % len(self.on)]

    def moves(self, now_s):
        return not self.is_over() and now_s >= self.moves_from_s


def fair_shares(jobs, bytes_per_s):
    """For each job: the time from its first phase to the end of its last, and its longest phase. Rates by storage."""
    for job in jobs:
        job.begin(job.delay_s)
    now_s = 0.0
    while not all(job.is_over() for job in jobs):
        moving = [job for job in jobs if job.moves(now_s)]
        rates = [bytes_per_s[job.storage()] / sum(job.storage() == one.storage() for one in moving) for job in moving]
        comes_s = [job.moves_from_s for job in jobs if not job.is_over() and job.moves_from_s > now_s]
        ends_s = [now_s + job.left_bytes / rate for job, rate in zip(moving, rates)]
        next_s = min(comes_s + ends_s)
        for job, rate, end_s in zip(moving, rates, ends_s):
            job.left_bytes -= rate * (next_s - now_s)
            if end_s <= next_s:
                job.end(next_s)
        now_s = next_s
    return [(job.end_s - job.delay_s, job.longest_s) for job in jobs]
