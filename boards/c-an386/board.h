/* What main.c needs of the board. */

#ifndef BOARD_H
#define BOARD_H

void serial_begin(void);
void serial_send(char byte);

#endif
