/* Vectors, start-up code, the first serial port and the end of the emulation: everything of the board that dmexp does not care about. */

#include "board.h"
#include <stdint.h>

extern uint32_t stack_top[], data_start[], data_end[], data_load[], bss_start[], bss_end[];

int main(void);

/* Semihosting: ends the emulator with this status. */
static void leave(uint32_t status) {
    const uint32_t block[2] = {0x20026, status};
    register uint32_t operation __asm__("r0") = 0x20;
    register const uint32_t *argument __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : : "r"(operation), "r"(argument) : "memory");
    for (;;) {
    }
}

static void reset(void) {
    /* The floating-point unit is off after a reset. */
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
    __asm__ volatile("dsb\n isb");
    for (uint32_t *to = data_start, *from = data_load; to < data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *to = bss_start; to < bss_end;) {
        *to++ = 0;
    }
    leave((uint32_t)main());
}

static void fault(void) {
    leave(102);
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault,
};

/* CMSDK UART 0: DATA 0, STATE 4, CTRL 8, BAUDDIV 16. */
#define UART ((volatile uint32_t *)0x40004000)

void serial_begin(void) {
    UART[4] = 16;
    UART[2] = 1;
}

void serial_send(char byte) {
    while (UART[1] & 1) {
    }
    UART[0] = (uint8_t)byte;
}
