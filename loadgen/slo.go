package loadgen

// SLO placeholder
type SLO struct{}

const maxVerify = 64
const maxKeptAudio = 64 << 20
