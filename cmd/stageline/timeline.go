package main

import "github.com/stageline/stageline/correlate"

// timelineOptions are the rules by which every command builds a timeline.
func timelineOptions() correlate.Options { return correlate.Options{} }
