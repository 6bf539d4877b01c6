# Everything is in ./dev, which needs Python alone; these are the same words for those who type make.

.PHONY: demo test test-systems soak bench patroni rules clean

demo test test-systems soak bench patroni rules clean:
	@./dev $@ $(ARGS)
