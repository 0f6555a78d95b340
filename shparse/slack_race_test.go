//go:build race

package shparse

// slack allows for the race detector, which makes parsing many times slower.
const slack = 40
