package stack

import "syscall"

// sysProcAttr adds to what the command has set itself, which may be nil.
func sysProcAttr(attr *syscall.SysProcAttr, detach bool) *syscall.SysProcAttr {
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Setsid = true
	if !detach {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}
