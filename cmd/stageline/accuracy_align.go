package main

import "math"

// align pairs two sequences in order: in full when they are equally long, else so that all of the
// shorter one is paired and the sum of time differences is least. It returns for each a the index
// of its b, or −1. Unknown times cost nothing.
func align(a, b []*int64) []int {
	out := make([]int, len(a))
	for i := range out {
		out[i] = i
	}
	switch {
	case len(a) == len(b):
	case len(a) < len(b):
		out = alignShort(a, b)
	default:
		for i := range out {
			out[i] = -1
		}
		for j, i := range alignShort(b, a) {
			out[i] = j
		}
	}
	return out
}

// alignShort pairs every element of short, in order, with one of long.
func alignShort(short, long []*int64) []int {
	// cost[i][j]: least cost of pairing short[i:] within long[j:].
	cost := make([][]float64, len(short)+1)
	for i := range cost {
		cost[i] = make([]float64, len(long)+1)
		for j := range cost[i] {
			if i < len(short) {
				cost[i][j] = math.Inf(1)
			}
		}
	}
	for i := len(short) - 1; i >= 0; i-- {
		for j := len(long) - 1; j >= 0; j-- {
			cost[i][j] = min(cost[i][j+1], distance(short[i], long[j])+cost[i+1][j+1])
		}
	}
	out := make([]int, len(short))
	j := 0
	for i := range short {
		for cost[i][j+1] < distance(short[i], long[j])+cost[i+1][j+1] {
			j++
		}
		out[i] = j
		j++
	}
	return out
}

func distance(a, b *int64) float64 {
	if a == nil || b == nil {
		return 0
	}
	return math.Abs(float64(*a - *b))
}

func hopTimes(hops []*truthHop) []*int64 {
	out := make([]*int64, len(hops))
	for i, h := range hops {
		out[i] = firstOf(h.Send, h.Recv)
	}
	return out
}

func foundTimes(hops []*foundHop) []*int64 {
	out := make([]*int64, len(hops))
	for i, h := range hops {
		out[i] = firstOf(h.Send.NS, h.Recv.NS)
	}
	return out
}
