// Package model explores schedules.
package model
