package stack

import "syscall"

func sysProcAttr(detach bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if !detach {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}
