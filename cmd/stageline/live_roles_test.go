package main

// liveRole names what a copy of the test program is to be instead of running tests.
const liveRole = "STAGELINE_LIVE_ROLE"

var liveRoles = map[string]func(){}
